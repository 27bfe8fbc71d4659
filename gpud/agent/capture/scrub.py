"""Replace what names a machine or a person in a capture by stand-ins of the same shape.

The same original is the same stand-in everywhere, and a stand-in is its own. PCI bus ids, versions,
models and the hash of the driver folder stay: they tell the kind of machine.
"""

from __future__ import annotations

import ipaddress
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpud.core import wsl

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SHORTEST_NAME: Final = 3
"""Shorter ones are replaced in paths only: as words they would be everywhere."""
_PUBLIC = """
    admin administrator all cuda debian default docker geforce gpu gpud host linux localhost
    microsoft nobody none nvidia nvidia-smi people public root ubuntu unknown user users windows wsl
    bin boot dev etc home lib lib64 mnt opt proc run sbin srv sys tmp usr var
"""
PUBLIC: Final = frozenset(_PUBLIC.split()) | {
    "all users",
    "default user",
    "debian-kernel@lists.debian.org",
}
"""Names that tell nothing, and without which the rest could not be read. In lower case."""
VERSION_PROGRAMS: Final = ("wslinfo", "wsl.exe", "cmd.exe")
"""Programs whose numbers with three dots are versions; so are those of the kernel's own files."""


@dataclass(frozen=True, slots=True)
class Identifier:
    """A kind of identifier: its name for people, its stand-ins, and ``id`` in its pattern."""

    kind: str
    stand_in: str
    pattern: re.Pattern[str]

    def is_stand_in(self, text: str) -> bool:
        """Return whether ``text`` is one of the stand-ins."""
        before, _, after = re.sub(r"\{.*\}", "\0", self.stand_in).partition("\0")
        return re.fullmatch(re.escape(before) + "[0-9a-f]+" + re.escape(after), text) is not None


def _identifier(kind: str, stand_in: str, pattern: str) -> Identifier:
    return Identifier(kind, stand_in, re.compile(pattern, re.IGNORECASE))


USERS, HOSTS, PROCESSES, ADDRESSES = "user names", "host names", "process ids", "IP addresses"
USER, HOST = "user{}", "host{}"
_IPV4 = r"(?<![\w.])(?P<id>[0-9]{1,3}(?:\.[0-9]{1,3}){3})(?!\.?\w)"
HOMES: Final = (
    _identifier(USERS, USER, r"[\\/]home[\\/]+(?P<id>[^\\/\s\"':;,()\[\]<>|]+)"),
    _identifier(
        USERS,
        USER,
        r"(?:\b[A-Z]:|/[a-z])[\\/]+Users[\\/]+"
        r"(?P<id>[^\\/:*?\"'<>|\r\n\t;,()\[\]]*[^\\/:*?\"'<>|\s;,()\[\]])",
    ),
)
PROCESS: Final = _identifier(
    PROCESSES, "9{:06d}", r"\b(?:pid|process)\b[ =:]+(?P<id>[0-9]{1,10})\b"
)
"""The stand-ins are above every process id that Linux gives (2^22)."""
IDENTIFIERS: Final = (
    _identifier(
        "UUIDs",
        "00000000-0000-4000-8000-{:012d}",
        r"(?<![0-9a-f])(?P<id>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?![0-9a-f])",
    ),
    _identifier(
        "e-mail addresses",
        "mail{}@example.com",
        r"(?<![\w.+-])(?P<id>[\w.+-]+@(?:[a-z0-9-]+\.)+[a-z]{2,})(?![\w-])",
    ),
    *HOMES,
    _identifier(
        "MAC addresses",
        "02:00:00:00:00:{:02x}",
        r"(?<![0-9a-f])(?<![0-9a-f][:-])(?P<id>[0-9a-f]{2}(?P<mark>[:-])"
        r"(?:[0-9a-f]{2}(?P=mark)){4}[0-9a-f]{2})(?![0-9a-f]|[:-][0-9a-f])",
    ),
    _identifier(
        ADDRESSES,
        "2001:db8::{:x}",
        r"(?<![\w:.])(?P<id>[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7}(?:\.[0-9]{1,3}){0,3})(?![\w:])",
    ),
    _identifier(ADDRESSES, "192.0.2.{}", _IPV4),
    PROCESS,
    _identifier(
        "serial numbers",
        "00000000{:05d}",
        r"\bserial(?:[ _]?number)?\"?\s*[:=,>]\s*\"?(?=[A-Z]*[0-9])(?P<id>[A-Z0-9]{5,})\b",
    ),
)


def scrubbed(
    document: dict[str, Any], users: Iterable[str] = (), hosts: Iterable[str] = ()
) -> tuple[dict[str, Any], dict[str, int]]:
    """Return a capture without identifiers, and of how many of each kind there were.

    ``users`` and ``hosts`` are names that no pattern finds; who else is named in a home folder's
    path or in ``wsl.conf`` is found. Scrubbing twice does what scrubbing once does.
    """
    conf = wsl.sections(document["files"].get("/etc/wsl.conf", ""))
    users = [*users, conf.get("user", {}).get("default", ""), *_people(_texts(document))]
    hosts = [*hosts, conf.get("network", {}).get("hostname", "")]
    words = [
        Identifier(kind, stand_in, pattern)
        for kind, stand_in, names in ((USERS, USER, users), (HOSTS, HOST, hosts))
        if (pattern := _words(names)) is not None
    ]
    scrub = _Scrub(document, (*IDENTIFIERS, *words))
    clean = scrub.walked(document)
    return clean, {kind: len(originals) for kind, originals in scrub.stand_ins.items()}


class _Scrub:
    """The stand-ins given so far, and the one walk that puts them in."""

    def __init__(self, document: dict[str, Any], identifiers: tuple[Identifier, ...]) -> None:
        self.stand_ins: dict[str, dict[str, str]] = {}  # by kind and original
        self._identifiers = identifiers
        self._taken = json.dumps(document, ensure_ascii=False).lower()
        self._versions = frozenset(_versions(document))
        self._numbers: dict[str, int] = {}  # the last of each kind

    def walked(self, value: Any, key: str = "") -> Any:  # noqa: ANN401  # any JSON
        """Return a JSON value with stand-ins. Keys may be paths and UUIDs; words of ours stay."""
        if isinstance(value, dict):
            return {
                name if name.isidentifier() else self._text(name): self.walked(content, name)
                for name, content in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.walked(content, key) for content in value]
        if type(value) is int and key in {"pid", "ppid"}:
            return int(self._stand_in(PROCESS, str(value)))
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        for identifier in self._identifiers:

            def replaced(match: re.Match[str], identifier: Identifier = identifier) -> str:
                before, after = match.start("id") - match.start(), match.end("id") - match.end()
                stand_in = self._stand_in(identifier, match["id"])
                return match[0][:before] + stand_in + (match[0][after:] if after else "")

            text = identifier.pattern.sub(replaced, text)
        return text

    def _stand_in(self, identifier: Identifier, original: str) -> str:
        """Return the stand-in of ``original``; one that nothing in the capture is called already.

        The original itself where it names nobody.
        """
        name = original.lower()
        if name in PUBLIC or identifier.is_stand_in(name):
            return original
        if identifier.kind == ADDRESSES and not self._is_address(original):
            return original
        stand_ins = self.stand_ins.setdefault(identifier.kind, {})
        while name not in stand_ins:
            number = self._numbers[identifier.kind] = self._numbers.get(identifier.kind, 0) + 1
            stand_in = identifier.stand_in.format(number)
            if stand_in not in self._taken:
                stand_ins[name] = stand_in
        return stand_ins[name]

    def _is_address(self, text: str) -> bool:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:  # a version, a time, a bus id
            return False
        return not (address.is_loopback or address.is_unspecified or text in self._versions)


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401  # any JSON
    """Yield every text of a JSON document, keys too."""
    if isinstance(value, dict):
        yield from value
        value = value.values()
    elif isinstance(value, str):
        yield value
        return
    elif not isinstance(value, list | tuple):
        return
    for content in value:
        yield from _texts(content)


def _people(texts: Iterable[str]) -> Iterator[str]:
    """Yield whose home folders are named; of `Ada Lovelace` also the first name."""
    for text in texts:
        for home in HOMES:
            for match in home.pattern.finditer(text):
                yield match["id"]
                yield match["id"].partition(" ")[0]


def _versions(document: dict[str, Any]) -> Iterator[str]:
    """Yield what looks like an address and is a version."""
    texts = [text for path, text in document["files"].items() if path.startswith("/proc/")]
    programs = [document["programs"].get(name) for name in VERSION_PROGRAMS]
    for text in (*texts, *(program["stdout"] for program in programs if program is not None)):
        yield from re.findall(_IPV4, text)


def _words(names: Iterable[str]) -> re.Pattern[str] | None:
    """Match any of the names where it stands alone; None when there is none to be matched."""
    words = {name for name in names if len(name) >= SHORTEST_NAME and "/" not in name}
    words = {word for word in words if word.lower() not in PUBLIC}
    longest_first = sorted(words, key=lambda word: (-len(word), word))
    pattern = rf"(?<![^\W_])(?P<id>{'|'.join(map(re.escape, longest_first))})(?![^\W_])"
    return re.compile(pattern, re.IGNORECASE) if words else None
