"""Replace what names a machine or a person in a capture by stand-ins of the same shape.

The same original is the same stand-in everywhere, and a stand-in is its own. PCI bus ids, versions
and models stay: they tell the kind of machine.
"""

from __future__ import annotations

import ipaddress
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gpud.core import wsl

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SHORTEST_NAME: Final = 3
"""Shorter ones are replaced in paths only: as words they would be everywhere."""
_PUBLIC: Final = """
    admin administrator all cuda debian default docker geforce gpu gpud host linux localhost
    microsoft nobody none nvidia people public root ubuntu unknown user users windows wsl
    bin boot dev etc home lib mnt opt proc run sbin sys tmp usr var
    debian-kernel@lists.debian.org
"""
PUBLIC: Final = frozenset(_PUBLIC.split()) | {"all users", "default user"}
"""Names that tell nothing, and without which the rest could not be read. In lower case."""


class Identifier(NamedTuple):
    """A kind of identifier, its stand-ins, and the pattern that finds it as ``id``."""

    kind: str
    stand_in: str
    pattern: str


USERS, HOSTS, ADDRESSES = "user names", "host names", "IP addresses"
HOMES: Final = (
    Identifier(USERS, "user{}", r"[\\/]home[\\/]+(?P<id>[^\\/\s\"':;,()\[\]<>|]+)"),
    Identifier(
        USERS,
        "user{}",
        r"(?:\b[A-Z]:|/[a-z])[\\/]+Users[\\/]+"
        r"(?P<id>[^\\/:*?\"'<>|\r\n\t;,()\[\]]*[^\\/:*?\"'<>|\s;,()\[\]])",
    ),
)
IDENTIFIERS: Final = (
    Identifier(
        "UUIDs",
        "00000000-0000-4000-8000-{:012d}",
        r"(?<![0-9a-f])(?P<id>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?![0-9a-f])",
    ),
    Identifier(
        "e-mail addresses",
        "mail{}@example.com",
        r"(?<![\w.+-])(?P<id>[\w.+-]+@(?:[a-z0-9-]+\.)+[a-z]{2,})(?![\w-])",
    ),
    *HOMES,
    Identifier(
        "MAC addresses",
        "02:00:00:00:00:{:02x}",
        r"(?<![0-9a-f])(?<![0-9a-f][:-])(?P<id>[0-9a-f]{2}(?P<mark>[:-])"
        r"(?:[0-9a-f]{2}(?P=mark)){4}[0-9a-f]{2})(?![0-9a-f]|[:-][0-9a-f])",
    ),
    Identifier(
        ADDRESSES,
        "2001:db8::{:x}",
        r"(?<![\w:.])(?P<id>[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7}(?:\.[0-9]{1,3}){0,3})(?![\w:])",
    ),
    Identifier(  # "6.6.87.2-microsoft" is a kernel
        ADDRESSES,
        "192.0.2.{}",
        r"(?<![\w.])(?P<id>[0-9]{1,3}(?:\.[0-9]{1,3}){3})(?!\.?\w|-microsoft)",
    ),
    Identifier(
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
    path or in ``wsl.conf`` is found.
    """
    conf = wsl.sections(document["files"].get("/etc/wsl.conf", ""))
    users = [*users, conf.get("user", {}).get("default", ""), *_people(document)]
    hosts = [*hosts, conf.get("network", {}).get("hostname", "")]
    scrub = _Scrub((*IDENTIFIERS, *_words(USERS, "user{}", users), *_words(HOSTS, "host{}", hosts)))
    clean = scrub.walked(document)
    return clean, {kind: len(originals) for kind, originals in scrub.stand_ins.items()}


class _Scrub:
    """The stand-ins given so far, and the one walk that puts them in."""

    def __init__(self, identifiers: Iterable[Identifier]) -> None:
        self.stand_ins: defaultdict[str, dict[str, str]] = defaultdict(dict)  # by kind, original
        self._patterns = [(each, re.compile(each.pattern, re.IGNORECASE)) for each in identifiers]

    def walked(self, value: Any) -> Any:  # noqa: ANN401  # any JSON
        """Return a JSON value with stand-ins. Keys may be paths and UUIDs; words of ours stay."""
        if isinstance(value, dict):
            return {
                name if name.isidentifier() else self._text(name): self.walked(content)
                for name, content in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.walked(content) for content in value]
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        for identifier, pattern in self._patterns:

            def replaced(match: re.Match[str], identifier: Identifier = identifier) -> str:
                before, after = match.start("id") - match.start(), match.end("id") - match.start()
                stand_in = self._stand_in(identifier, match["id"])
                return match[0][:before] + stand_in + match[0][after:]

            text = pattern.sub(replaced, text)
        return text

    def _stand_in(self, identifier: Identifier, original: str) -> str:
        """Return the stand-in of ``original``, which is itself where it names nobody."""
        name = original.lower()
        before, _, after = re.sub(r"\{.*\}", "\0", identifier.stand_in).partition("\0")
        shape = f"{re.escape(before)}[0-9a-f]+{re.escape(after)}"
        if name in PUBLIC or re.fullmatch(shape, name):
            return original
        if identifier.kind == ADDRESSES and not _is_address(original):
            return original
        stand_ins = self.stand_ins[identifier.kind]
        return stand_ins.setdefault(name, identifier.stand_in.format(len(stand_ins) + 1))


def _is_address(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:  # a version, a time, a bus id
        return False
    return not (address.is_loopback or address.is_unspecified)


def _people(value: Any) -> Iterator[str]:  # noqa: ANN401  # any JSON
    """Yield whose home folders are named anywhere; of `Ada Lovelace` also the first name."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple):
        for content in value:
            yield from _people(content)
    elif isinstance(value, str):
        for home in HOMES:
            for match in re.finditer(home.pattern, value, re.IGNORECASE):
                yield match["id"]
                yield match["id"].partition(" ")[0]


def _words(kind: str, stand_in: str, names: Iterable[str]) -> Iterator[Identifier]:
    """Yield what finds any of the names where it stands alone; nothing without a name."""
    words = {name for name in names if len(name) >= SHORTEST_NAME and "/" not in name}
    longest_first = sorted(words, key=lambda word: (-len(word), word))
    if longest_first:
        alternatives = "|".join(map(re.escape, longest_first))
        yield Identifier(kind, stand_in, rf"(?<![^\W_])(?P<id>{alternatives})(?![^\W_])")
