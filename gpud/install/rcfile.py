"""The marked block of gpud in a shell's start file: ``has|add|remove|drop FILE [SNIPPET...]``.

Every other byte of the file stays what it is: ``remove`` after ``add`` gives back the same bytes,
and ``drop`` after ``add`` also takes away the file that ``add`` made. A block that lost one of its
ends is named, and the file left as it is.
Runs as the owner of the file, with any Python 3, from standard input. Exit status: 0 done (for
``has``: there, once, as in the snippet), 1 not so, with the reason on stderr.
"""

import os
import stat
import sys

EVERY = 0o777  # the mode of what is on a Windows drive, which may have no other
BEGIN, END = b"# >>> gpud >>>", b"# <<< gpud <<<"
JOINED = BEGIN + b" "
"""The first line of a block before which a line end was put, as the file did not end in one.

A space, so that everybody who looks for the mark still finds it; where an editor takes it away, the
file keeps that line end."""


def bare(line: bytes) -> bytes:
    """Give a line without its end and what an editor may have left before it."""
    return line.rstrip(b" \t\r\n")


def lines(text: bytes) -> "list[bytes]":
    """Split at newlines alone, ends kept: ``bytes.splitlines`` would also split at a lone CR."""
    return [part + b"\n" for part in text.split(b"\n")[:-1]] + [
        part for part in text.split(b"\n")[-1:] if part
    ]


def begins(line: bytes) -> bool:
    """Say whether a block begins here."""
    return bare(line) == BEGIN


def joins(line: bytes) -> bool:
    """Say whether a line end was put before the block that begins here."""
    return line.rstrip(b"\r\n") == JOINED


def blocks(text: "list[bytes]") -> "list[tuple[int, int]]":
    """Return every block: its first line and the one after its last, in order.

    Errors: ``SystemExit`` naming the line of a block that lost its other end.
    """
    found: list[tuple[int, int]] = []
    first = None
    for at, line in enumerate(text):
        is_end = bare(line) == END
        if (first is None and is_end) or (first is not None and begins(line)):
            _broken(at if first is None else first)
        elif begins(line):
            first = at
        elif is_end and first is not None:
            found.append((first, at + 1))
            first = None
    if first is not None:
        _broken(first)
    return found


def _broken(at: int) -> None:
    raise SystemExit(
        f"line {at + 1} is one end of a block of gpud, and the other end is missing: "
        "remove what is left of the block by hand"
    )


def without(text: bytes) -> bytes:
    """Take every block out, and the line end that ``with_block`` put before one."""
    split = lines(text)
    for first, end in reversed(blocks(split)):
        joined = joins(split[first]) and end == len(split)
        del split[first:end]
        if joined and split and split[-1].endswith(b"\n"):
            split[-1] = split[-1][:-1]
    return b"".join(split)


def with_block(text: bytes, block: bytes) -> bytes:
    """Put the block in the place of the first one, else at the end."""
    split = lines(text)
    found = blocks(split)
    joined = bool(text) and not text.endswith(b"\n")
    if found:
        first, end = found[0]
        joined = joins(split[first])
        after = without(b"".join(split[end:]))
        return b"".join(split[:first]) + marked(block, joined=joined) + after
    return text + (b"\n" if joined else b"") + marked(block, joined=joined)


def marked(block: bytes, *, joined: bool) -> bytes:
    """Give the block with its first line saying whether a line end was put before it."""
    first, _, rest = block.partition(b"\n")
    return (JOINED if joined else first) + b"\n" + rest


def read(path: str) -> "bytes | None":
    """Give the content, None when there is no file. Errors: ``SystemExit`` when it is no file."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116  # a FIFO would never answer
            raise SystemExit(f"{path!a} is not a regular file")
        with open(path, "rb") as file:  # noqa: PTH123  # no import this does not need
            return file.read()
    except FileNotFoundError:
        return None


def write(path: str, text: bytes, old: "bytes | None") -> None:
    """Replace the file a link leads to, in one moment, with its mode."""
    seen = None if old is None else os.stat(path)  # noqa: PTH116
    if seen and seen.st_uid != os.getuid():
        raise SystemExit(f"{path!a} belongs to somebody else")
    os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
    fresh = path + ".gpud-new"
    with open(fresh, "xb") as file:  # noqa: PTH123
        if seen and os.fstat(file.fileno()).st_mode & EVERY != EVERY:
            os.fchmod(file.fileno(), seen.st_mode & 0o7777)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)  # noqa: PTH105


def main(verb: str, path: str, *snippets: str) -> int:
    """Do one of the four."""
    path = os.path.realpath(path)
    if verb in ("remove", "drop") and os.path.exists(path) and not os.path.isfile(path):  # noqa: PTH110, PTH113
        return 0  # a FIFO or a directory holds no block
    old = read(path)
    text = old or b""
    if verb in ("has", "add"):
        block = read(snippets[0])
        if block is None:
            raise SystemExit(f"there is no {snippets[0]}")
        new = with_block(text, block)
        if verb == "has":
            return int(new != text)
    else:
        new = without(text)
    if os.path.lexists(path + ".gpud-new"):  # of an interrupted run
        os.unlink(path + ".gpud-new")  # noqa: PTH108
    if verb == "drop" and not new and old is not None:
        os.unlink(path)  # noqa: PTH108
    elif new != text:
        write(path, new, old)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except OSError as error:
        sys.exit(f"{error.filename!a}: {error.strerror}")
