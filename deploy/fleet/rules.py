#!/usr/bin/env python3
"""Copy gpud's rules for a fleet: the expressions as they are, and what is said here beside them.

    rules.py /etc/prometheus/rules
    rules.py --runbooks https://wiki.example/gpud /etc/prometheus/rules
    rules.py --no-keep-firing /etc/vmalert/rules

A laptop's instance is a name and no address, so a link to the page on the machine leads nowhere:
``--runbooks`` puts another address in front of ``/GpudNAME``. vmalert before 1.91 refuses
``keep_firing_for``: ``--no-keep-firing`` leaves it out, and alerts end sooner. ``--hurry N``
divides ``for``, ``keep_firing_for`` and the groups' ``interval`` by N, one second at least, and
the first two ``--wait`` seconds at least: for trying out, with a wait of some scrapes.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

RULES = Path(__file__).resolve().parents[1] / "prometheus/rules"
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
WAIT = re.compile(r"^(  +(?:for|keep_firing_for|interval): )(\d+)([smhd])$", re.MULTILINE)
KEPT = re.compile(r"^ +keep_firing_for: .*\n", re.MULTILINE)
RUNBOOK = re.compile(r"^( +runbook_url: )(?:>-\n +)?http://.*/runbooks/(\w+)$", re.MULTILINE)


def changed(
    text: str, *, runbooks: str = "", keep_firing: bool = True, hurry: int = 1, wait_s: int = 1
) -> str:
    """Give a rule file with these changes and no other. Units: ``hurry`` is a divisor."""
    if runbooks:
        text = RUNBOOK.sub(lambda found: f"{found[1]}{runbooks.rstrip('/')}/{found[2]}", text)
    if not keep_firing:
        text = KEPT.sub("", text)
    if hurry > 1:

        def divided(found: re.Match[str]) -> str:
            least_s = 1 if "interval" in found[1] else wait_s
            whole_s = int(found[2]) * UNITS_S[found[3]]
            return f"{found[1]}{max(least_s, whole_s // hurry)}s"

        text = WAIT.sub(divided, text)
    return text


def main() -> int:
    """Write every rule file into the folder that is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runbooks", default="", metavar="URL")
    parser.add_argument("--no-keep-firing", action="store_true")
    parser.add_argument("--hurry", type=int, default=1, metavar="N")
    parser.add_argument("--wait", type=int, default=1, metavar="S", help="at least, when hurried")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for file in sorted(RULES.glob("*.yml")):
        text = changed(
            file.read_text(),
            runbooks=given.runbooks,
            keep_firing=not given.no_keep_firing,
            hurry=given.hurry,
            wait_s=given.wait,
        )
        (given.folder / file.name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
