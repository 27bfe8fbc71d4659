"""The marked block of gpud in a shell's start file: ``has|add|remove FILE [SNIPPET]``.

Every other byte of the file stays what it is: ``remove`` after ``add`` gives back the same bytes.
Runs as the owner of the file, with any Python 3, from standard input. Exit status: 0 done (for
``has``: there, once, as in the snippet), 1 not so, with the reason on stderr.
"""

import os
import re
import sys

BLOCK = re.compile(
    rb"^# >>> gpud >>>[ \t]*\r?\n.*?^# <<< gpud <<<[ \t]*(?:\r?\n|\Z)", re.MULTILINE | re.DOTALL
)
FENCE = re.compile(rb"^# (>>>|<<<) gpud \1[ \t]*\r?$", re.MULTILINE)


def read(path: str) -> "bytes | None":
    """Give the content, None when there is no file."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123  # no import this does not need
            return file.read()
    except FileNotFoundError:
        return None


def without(text: bytes) -> bytes:
    """Take every block out, and the line end that ``with_block`` put before one."""
    while (found := BLOCK.search(text)) is not None:
        before, after = text[: found.start()], text[found.end() :]
        if not after and not found.group().endswith(b"\n") and before.endswith(b"\n"):
            before = before[:-1]
        text = before + after
    broken = FENCE.search(text)
    if broken is not None:
        line = text[: broken.start()].count(b"\n") + 1
        raise SystemExit(f"line {line} is one end of a block of gpud, and the other end is missing")
    return text


def with_block(text: bytes, block: bytes) -> bytes:
    """Put the block in the place of the old one, else at the end.

    A file whose last line has no end gets a block without one: that is how ``without`` knows.
    """
    found = BLOCK.search(text)
    if found is not None and found.group().endswith(b"\n"):
        rest = without(text[found.end() :])
        return without(text[: found.start()]) + block + rest
    text = without(text)
    if text and not text.endswith(b"\n"):
        return text + b"\n" + block.rstrip(b"\n")
    return text + block


def write(path: str, text: bytes, old: "bytes | None") -> None:
    """Replace the file a link leads to, in one moment, with its mode."""
    path = os.path.realpath(path)
    mode = 0o644
    if old is not None:
        seen = os.stat(path)  # noqa: PTH116
        mode = seen.st_mode & 0o7777
        if seen.st_uid != os.getuid():
            raise SystemExit(f"{path} belongs to somebody else")
    os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
    fresh = f"{path}.gpud-new"
    with open(fresh, "wb") as file:  # noqa: PTH123
        os.fchmod(file.fileno(), mode)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)  # noqa: PTH105


def main(verb: str, path: str, snippet: str = "") -> int:
    """Do one of the three."""
    old = read(path)
    text = old or b""
    if verb == "remove":
        new = without(text)
    else:
        block = read(snippet)
        if block is None:
            raise SystemExit(f"there is no {snippet}")
        if verb == "has":
            found = BLOCK.findall(text)
            return 0 if [one.rstrip(b"\n") for one in found] == [block.rstrip(b"\n")] else 1
        new = with_block(text, block)
    if new != text:
        write(path, new, old)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")
