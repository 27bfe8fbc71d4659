"""Colours of a screenshot, by the standard library alone."""

from __future__ import annotations

import struct
import zlib
from typing import TypeAlias

Colour: TypeAlias = tuple[int, ...]


def rows(png: bytes) -> list[list[Colour]]:
    """Give the colours of a PNG of eight bits a channel without interlace, row by row."""
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    assert depth == 8
    channels = {2: 3, 6: 4}[kind]
    data, place = b"", 8
    while place < len(png):
        (size,) = struct.unpack(">I", png[place : place + 4])
        if png[place + 4 : place + 8] == b"IDAT":
            data += png[place + 8 : place + 8 + size]
        place += 12 + size
    raw = zlib.decompress(data)
    stride = width * channels
    found, above = [], bytearray(stride)
    for y in range(height):
        start = y * (stride + 1)
        above = _unfiltered(raw[start], raw[start + 1 : start + 1 + stride], above, channels)
        found.append([tuple(above[x : x + 3]) for x in range(0, stride, channels)])
    return found


def _unfiltered(kind: int, line: bytes, above: bytearray, step: int) -> bytearray:
    out = bytearray(line)
    for x in range(len(out)):
        left = out[x - step] if x >= step else 0
        corner = above[x - step] if x >= step else 0
        guess = (0, left, above[x], (left + above[x]) // 2, _paeth(left, above[x], corner))[kind]
        out[x] = (out[x] + guess) & 0xFF
    return out


def _paeth(left: int, above: int, corner: int) -> int:
    return min((left, above, corner), key=lambda one: abs(left + above - corner - one))
