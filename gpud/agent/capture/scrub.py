"""Take out of a capture what names a machine or a person, and leave what tells how it works.

UUIDs, serial numbers, host and user names, home folders, addresses of networks and of people, and
process ids become stand-ins of the same shape; the same original is the same stand-in everywhere,
and a stand-in is its own.
PCI bus ids, versions, models and the hash of the driver folder stay: they tell the kind of machine.
"""

from __future__ import annotations

import ipaddress
import re
from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from gpud.agent.capture.document import Capture, Json
from gpud.core import wsl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


class Kind(StrEnum):
    """What was replaced, in words for the person."""

    UUID = "UUIDs"
    SERIAL = "serial numbers"
    HOST = "host names"
    USER = "user names"
    ADDRESS = "IP addresses"
    MAC = "MAC addresses"
    MAIL = "e-mail addresses"
    PROCESS = "process ids"


@dataclass(frozen=True, slots=True)
class Identity:
    """Names of this machine and of the people on it: no pattern finds them."""

    hosts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()


SHORTEST_NAME: Final = 3
"""Shorter ones are replaced in paths only: as words they would be everywhere."""
_PUBLIC = """
    admin administrator all cuda debian default docker geforce gpu gpud host linux localhost
    microsoft nobody none nvidia nvidia-smi people public root ubuntu unknown user users windows wsl
    bin boot dev etc home lib lib64 mnt opt proc run sbin srv sys tmp usr var
"""
PUBLIC: Final = frozenset(_PUBLIC.split()) | {"all users", "default user"}
"""Names that tell nothing, and without which the rest could not be read. In lower case."""
OURS: Final = frozenset(
    {"arguments", "call", "devices", "encoding", "function", "gpud", "missing", "name", "origin"}
    | {"pci", "pci_bus_id", "reason", "state", "title", "verdict"}
)
"""Keys whose texts are words of gpud, of a driver's interface or of a kind of machine."""
UNNAMED: Final = frozenset({"driver_store"})
"""Parts in which no name can be."""
PUBLIC_MAIL: Final = frozenset({"debian-kernel@lists.debian.org"})
"""Who builds kernels for everybody. In lower case."""
PROCESS_KEYS: Final = frozenset({"pid", "ppid"})
FIRST_PROCESS: Final = 9_000_001
"""Above every process id that Linux gives (2^22)."""
TELL_VERSIONS: Final = ("wslinfo", "wsl.exe", "cmd.exe")
"""Programs whose numbers with three dots are versions; so are those of the kernel's own files."""

_ALONE, _END = r"(?<![^\W_])", r"(?![^\W_])"
_UUID = re.compile(
    r"(?<![0-9a-f])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f])", re.IGNORECASE
)
_SERIAL = re.compile(
    r"(\bserial(?:[ _]?number)?\"?\s*[:=,>]\s*\"?)(?=[A-Z]*[0-9])([A-Z0-9]{5,})\b", re.IGNORECASE
)
_HOME = re.compile(r"([\\/]home[\\/]+)([^\\/\s\"':;,()\[\]<>|]+)")
_WINDOWS_HOME = re.compile(
    r"((?:\b[A-Z]:|/[a-z])[\\/]+Users[\\/]+)([^\\/:*?\"'<>|\r\n\t;,()\[\]]*[^\\/:*?\"'<>|\s;,()\[\]])",
    re.IGNORECASE,
)
_MAC = re.compile(
    r"(?<![0-9a-f])(?<![0-9a-f][:-])[0-9a-f]{2}([:-])(?:[0-9a-f]{2}\1){4}[0-9a-f]{2}"
    r"(?![0-9a-f]|[:-][0-9a-f])",
    re.IGNORECASE,
)
_IPV4 = re.compile(r"(?<![\w.])[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?!\.?\w)")
_IPV6 = re.compile(
    r"(?<![\w:.])[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7}(?:\.[0-9]{1,3}){0,3}(?![\w:])", re.IGNORECASE
)
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@(?:[a-z0-9-]+\.)+[a-z]{2,}(?![\w-])", re.IGNORECASE)
_PROCESS = re.compile(r"(\b(?:pid|process)\b[ =:]+)([0-9]{1,10})\b", re.IGNORECASE)

_STANDS: Final[Mapping[Kind, re.Pattern[str]]] = {
    Kind.UUID: re.compile(r"00000000-0000-4000-8000-[0-9]{12}"),
    Kind.SERIAL: re.compile(r"0{6}[0-9]{7}"),
    Kind.HOST: re.compile(r"host[0-9]+"),
    Kind.USER: re.compile(r"user[0-9]+"),
    Kind.ADDRESS: re.compile(r"(?:192\.0\.2|198\.51\.100|203\.0\.113)\.[0-9]+|2001:db8::[0-9a-f]+"),
    Kind.MAC: re.compile(r"02([:-])00\1(?:00\1){2}[0-9a-f]{2}\1[0-9a-f]{2}"),
    Kind.MAIL: re.compile(r"mail[0-9]+@example\.com"),
    Kind.PROCESS: re.compile(r"90[0-9]{5}"),
}
_WORD_FORMS: Final = {Kind.SERIAL: "{:013d}", Kind.USER: "user{}", Kind.HOST: "host{}"}
_DOCUMENTATION: Final = ("192.0.2", "198.51.100", "203.0.113")  # RFC 5737
_IN_A_NET: Final = 254


def scrubbed(capture: Capture, identity: Identity) -> tuple[Capture, Mapping[Kind, int]]:
    """Give the capture without identifiers, and of how many of each kind there were.

    ``identity`` says what this machine and its people are called; who else is named in a home
    folder's path or in ``wsl.conf`` is found. Scrubbing twice does what scrubbing once does.
    """
    document = msgspec.to_builtins(capture)
    scrub = _Scrub(document, _named(capture, identity), _versions(capture))
    return msgspec.convert(scrub.walked(document), Capture), scrub.counts()


class _Scrub:
    """The stand-ins given so far, and the one walk that puts them in."""

    def __init__(self, document: Json, identity: Identity, versions: frozenset[str]) -> None:
        self._taken = msgspec.json.encode(document).decode().lower()
        self._versions = versions
        self._stands: dict[Kind, dict[str, str]] = defaultdict(dict)
        self._numbers: dict[Kind, int] = defaultdict(int)
        texts = tuple(_texts(document))
        self._words = {
            Kind.SERIAL: _pattern(_serials(document, texts)),
            Kind.USER: _pattern((*identity.users, *_people(texts))),
            Kind.HOST: _pattern(identity.hosts),
        }

    def counts(self) -> Mapping[Kind, int]:
        """Say how many different originals of each kind were replaced."""
        return {kind: len(self._stands[kind]) for kind in Kind if self._stands[kind]}

    def walked(self, value: Json, key: str = "") -> Json:
        """Give a JSON value with stand-ins; texts below keys of ours stay.

        Keys are words of ours, or identifiers such as the UUIDs in a status; of paths, names too.
        """
        if isinstance(value, dict):
            named = self.text if key == "files" else self._shapes
            return {named(name): self.walked(held, name) for name, held in value.items()}
        if isinstance(value, list | tuple):
            return [self.walked(held, key) for held in value] if key not in UNNAMED else value
        if isinstance(value, int) and not isinstance(value, bool) and key in PROCESS_KEYS:
            return int(self._stand(Kind.PROCESS, str(value), _process))
        return self.text(value) if isinstance(value, str) and key not in OURS else value

    def text(self, content: str) -> str:
        """Give a text with stand-ins."""
        content = self._shapes(content)
        for kind, pattern in self._words.items():
            if pattern is not None:
                content = pattern.sub(partial(self._word, kind), content)
        return content

    def _shapes(self, content: str) -> str:
        """Put stand-ins in for what is known by its shape."""
        content = _UUID.sub(self._uuid, content)
        content = _MAIL.sub(self._mail, content)
        content = _HOME.sub(self._home, content)
        content = _WINDOWS_HOME.sub(self._home, content)
        content = _MAC.sub(self._mac, content)
        content = _IPV6.sub(self._address, content)
        content = _IPV4.sub(self._address, content)
        return _PROCESS.sub(self._process, content)

    def _word(self, kind: Kind, match: re.Match[str]) -> str:
        return self._stand(kind, match[0].lower(), _WORD_FORMS[kind].format)

    def _stand(self, kind: Kind, original: str, form: Callable[[int], str]) -> str:
        """Give the stand-in of ``original``; one that is nobody else's already."""
        if _STANDS[kind].fullmatch(original):
            return original
        given = self._stands[kind]
        while original not in given:
            self._numbers[kind] += 1
            made = form(self._numbers[kind])
            if made.lower() not in self._taken:
                given[original] = made
        return given[original]

    def _uuid(self, match: re.Match[str]) -> str:
        return self._stand(Kind.UUID, match[0].lower(), "00000000-0000-4000-8000-{:012d}".format)

    def _home(self, match: re.Match[str]) -> str:
        name = match[2].lower()
        if name in PUBLIC:
            return match[0]
        return match[1] + self._stand(Kind.USER, name, _WORD_FORMS[Kind.USER].format)

    def _mail(self, match: re.Match[str]) -> str:
        if (address := match[0].lower()) in PUBLIC_MAIL:
            return match[0]
        return self._stand(Kind.MAIL, address, "mail{}@example.com".format)

    def _mac(self, match: re.Match[str]) -> str:
        mark = match[1]
        return self._stand(
            Kind.MAC,
            match[0].lower(),
            lambda n: mark.join(("02", "00", "00", "00", f"{n >> 8 & 255:02x}", f"{n & 255:02x}")),
        )

    def _address(self, match: re.Match[str]) -> str:
        try:
            address = ipaddress.ip_address(match[0])
        except ValueError:  # a version, a time, a bus id
            return match[0]
        if address.is_loopback or address.is_unspecified or match[0] in self._versions:
            return match[0]
        form = _ipv4 if address.version == 4 else "2001:db8::{:x}".format  # noqa: PLR2004
        return self._stand(Kind.ADDRESS, str(address), form)

    def _process(self, match: re.Match[str]) -> str:
        return match[1] + self._stand(Kind.PROCESS, match[2], _process)


def _process(number: int) -> str:
    return str(FIRST_PROCESS - 1 + number)


def _ipv4(number: int) -> str:
    net, host = divmod(number - 1, _IN_A_NET)
    return f"{_DOCUMENTATION[net % len(_DOCUMENTATION)]}.{host + 1}"


def _named(capture: Capture, identity: Identity) -> Identity:
    """Add the names that ``wsl.conf`` sets."""
    content = wsl.sections(capture.files.get("/etc/wsl.conf", ""))
    user = content.get("user", {}).get("default", "")
    host = content.get("network", {}).get("hostname", "")
    return Identity((*identity.hosts, host), (*identity.users, user))


def _versions(capture: Capture) -> frozenset[str]:
    """Find what looks like an address and is a version."""
    version_texts = [text for path, text in capture.files.items() if path.startswith("/proc/")]
    programs = [capture.programs.get(name) for name in TELL_VERSIONS]
    version_texts += [program.stdout for program in programs if program is not None]
    return frozenset(version for text in version_texts for version in _IPV4.findall(text))


def _texts(value: Json, key: str = "") -> Iterator[str]:
    """Yield every text of a JSON document that a name could be in."""
    if isinstance(value, dict):
        for name, held in value.items():
            yield name
            yield from _texts(held, name)
    elif isinstance(value, list | tuple):
        for held in value:
            yield from _texts(held, key)
    elif isinstance(value, str) and key not in OURS:
        yield value


def _people(texts: Iterable[str]) -> Iterator[str]:
    """Yield whose home folders are named; of `Ada Lovelace` also the first name."""
    for text in texts:
        for pattern in (_HOME, _WINDOWS_HOME):
            for match in pattern.finditer(text):
                yield match[2]
                yield match[2].partition(" ")[0]


def _serials(document: Json, texts: Iterable[str]) -> Iterator[str]:
    """Yield serial numbers: what a call of NVML gave as one, and what is called one in a text."""
    for call in document["nvml"]["calls"]:
        if "Serial" in call["call"] and isinstance(call["value"], str):
            yield call["value"]
    for text in texts:
        yield from (match[2] for match in _SERIAL.finditer(text))


def _pattern(words: Iterable[str]) -> re.Pattern[str] | None:
    """Match any of the words where it stands alone; None when there is none to be matched."""
    names = {word for word in words if len(word) >= SHORTEST_NAME and "/" not in word}
    wanted = [word for word in names if word.lower() not in PUBLIC]
    if not wanted:
        return None
    longest_first = sorted(wanted, key=lambda word: (-len(word), word))
    return re.compile(f"{_ALONE}(?:{'|'.join(map(re.escape, longest_first))}){_END}", re.IGNORECASE)
