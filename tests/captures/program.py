"""A program that says what was recorded of it; copied under the program's own name.

``NAME.recorded`` beside it holds the start that was recorded. nvidia-smi is asked for columns: the
recorded ones are given in the order asked for, and any other is refused in its own words.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

QUERY = "--query-gpu="
NOT_RECORDED = 99


def main() -> int:
    said = json.loads(Path(f"{sys.argv[0]}.recorded").read_text(encoding="utf-8"))
    asked: list[str] = sys.argv[1:]
    known: list[str] = said["arguments"]
    stdout: str = said["stdout"]
    code: int = said["code"]
    if asked != known:
        if not (asked and known and asked[1:] == known[1:] and asked[0].startswith(QUERY)):
            print(f"not recorded with {asked}", file=sys.stderr)
            return NOT_RECORDED
        if code == 0:
            stdout, code = columns(stdout, names(known), names(asked))
    sys.stdout.buffer.write(stdout.encode(said["encoding"]))
    sys.stdout.buffer.flush()
    sys.stderr.write(said["stderr"])
    return code


def names(arguments: list[str]) -> list[str]:
    return arguments[0].removeprefix(QUERY).split(",")


def columns(stdout: str, known: list[str], asked: list[str]) -> tuple[str, int]:
    for name in asked:
        if name not in known:
            return f'Field "{name}" is not a valid field to query.\n\n', 2
    picked = []
    for line in stdout.splitlines(keepends=True):
        cells = line.rstrip("\r\n").split(", ")
        end = line[len(line.rstrip("\r\n")) :]
        picked.append(", ".join(cells[known.index(name)] for name in asked) + end)
    return "".join(picked), 0


if __name__ == "__main__":
    sys.exit(main())
