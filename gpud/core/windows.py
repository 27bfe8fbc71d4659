"""What Windows programs write: UTF-16, a code page or UTF-8, in the person's own language."""

from __future__ import annotations

import re

_VERSION = re.compile(r"(?<![\d.])\d{1,6}(?:\.\d{1,6}){2,3}(?![\d.])", re.ASCII)
_BRACKETS = re.compile(r"\[([^\[\]]{0,80})\]")


def text(data: bytes) -> str:
    """Decode output of whatever program; what is not ASCII may be lost, digits never are.

    Only UTF-16 has many zero bytes in a text, and those of its ASCII tell which byte comes first.
    """
    if data.count(0) * 8 > len(data) or data.startswith((b"\xff\xfe", b"\xfe\xff")):
        little = data.startswith(b"\xff\xfe") or (
            not data.startswith(b"\xfe\xff") and data[1::2].count(0) >= data[::2].count(0)
        )
        said = data.decode("utf-16-le" if little else "utf-16-be", errors="replace")
    else:
        said = data.decode(errors="replace")
    return said.removeprefix("\ufeff")


def wsl_version(said: str) -> str | None:
    """Find WSL's version in what ``wslinfo --wsl-version`` or ``wsl.exe --version`` says.

    It is the first number of that shape, in every language. The two programs spell it as "2.4.13"
    and "2.4.13.0": one spelling comes out.
    """
    found = _VERSION.search(said)
    if found is None:
        return None
    parts = [str(int(part)) for part in found[0].split(".")]
    return ".".join(parts[:3] if parts[3:] == ["0"] else parts)


def build(said: str) -> str | None:
    """Find the version that ``ver`` writes in brackets: "Windows [Version 10.0.26100.3476]"."""
    for inside in _BRACKETS.findall(said):
        found = _VERSION.search(inside)
        if found is not None:
            return str(found[0])
    return None
