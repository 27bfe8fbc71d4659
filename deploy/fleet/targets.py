#!/usr/bin/env python3
"""Write the targets of a fleet in the JSON of file_sd and http_sd.

    targets.py this --owner ada --site berlin > gpud.json     on a laptop, for what ships its data
    targets.py list hosts.csv --to targets/lab.json           in the lab, for who scrapes

``hosts.csv`` has a heading; ``address`` (HOST or HOST:PORT) is asked for, ``site``, ``owner`` and
``always_on`` (true or empty) are labels, and an empty cell is no label. Needs nothing but Python.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import sys
import urllib.request
from pathlib import Path

PORT = 9945
LABELS = ("site", "owner", "always_on")
OF_THIS = re.compile(r"^gpud_machine_info\{(.*)\} 1", re.MULTILINE)
PAIR = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""To gpud itself, whatever proxy a company's laptop has in its environment."""
TIMEOUT_S = 2.0
"""Of an agent on this machine; a shell may be waiting."""
SHORT_ID = 8
"""Digits of the machine's id that go into its name: two of 300 alike by chance once in 100,000."""


def this(address: str, labels: dict[str, str]) -> list[dict[str, object]]:
    """Ask the gpud at ``address`` which machine it is, and name the instance after that.

    ``pushed`` tells the rules that whoever scrapes this sleeps when the machine does.
    Errors: ``OSError`` when it does not answer, ``ValueError`` when it does not say.
    """
    with DIRECT.open(f"http://{address}/metrics", timeout=TIMEOUT_S) as answer:
        found = OF_THIS.search(answer.read().decode())
    said = dict(PAIR.findall(found[1])) if found else {}
    if "machine_id" not in said:
        raise ValueError(f"{address} names no machine_id: is it a gpud that can keep its state?")
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", said.get("hostname", "")).strip("-") or "machine"
    instance = f"{name}-{said['machine_id'][:SHORT_ID]}".lower()
    return [{"targets": [address], "labels": {"instance": instance, "pushed": "true", **labels}}]


def listed(path: Path) -> list[dict[str, object]]:
    """Give the targets of a list. Errors: ``ValueError`` for a row that is none, ``OSError``."""
    with path.open(newline="") as file:
        rows = csv.DictReader(file)
        columns = set(rows.fieldnames or ())
        if "address" not in columns or columns - {"address", *LABELS}:
            raise ValueError(f"{path}: the columns are address, {', '.join(LABELS)}")
        found = []
        for row in rows:
            address = (row["address"] or "").strip()
            if not re.fullmatch(r"[A-Za-z0-9.\[\]:_-]+", address):
                raise ValueError(f"{path}:{rows.line_num}: {address!r} is no address")
            if not re.search(r":\d+$", address):
                address = f"{address}:{PORT}"
            labels = {key: row[key].strip() for key in LABELS if (row.get(key) or "").strip()}
            found.append({"targets": [address], "labels": labels})
    return found


def main() -> int:
    """Write the targets to standard output, or whole into a file that others watch."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ways = parser.add_subparsers(dest="way", required=True)
    one = ways.add_parser("this", help="the gpud of this machine")
    one.add_argument("--address", default=f"127.0.0.1:{PORT}")
    for label in LABELS:
        one.add_argument(f"--{label.replace('_', '-')}", default="")
    many = ways.add_parser("list", help="the machines of a CSV file")
    many.add_argument("csv", type=Path)
    for way in (one, many):
        way.add_argument("--to", type=Path, help="a file, replaced in one step")
    given = parser.parse_args()
    try:
        if given.way == "this":
            labels = {label: getattr(given, label) for label in LABELS if getattr(given, label)}
            targets = this(given.address, labels)
        else:
            targets = listed(given.csv)
    except (OSError, ValueError) as error:
        print(f"targets.py: {error}", file=sys.stderr)
        return 1
    text = json.dumps(targets, indent=1) + "\n"
    if given.to is None:
        sys.stdout.write(text)
        return 0
    given.to.parent.mkdir(parents=True, exist_ok=True)
    temporary = given.to.with_name(f".{given.to.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(given.to)
    return 0


if __name__ == "__main__":
    sys.exit(main())
