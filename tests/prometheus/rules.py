"""deploy/prometheus as Prometheus itself reads it, and what gpud's documents say beside it."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.e2e import scraping
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "deploy/prometheus"
RUNBOOKS: Final = ROOT / "docs/runbooks"

METRIC: Final = re.compile(r"\b(?:gpud_\w+|[a-z_]+:gpud_\w+:\w+)(?![\w:])")
SELECTED: Final = re.compile(rf"({METRIC.pattern}|\bup(?={{))(?:{{([^}}]*)}})?")
GROUPED: Final = re.compile(r"\b(?:by|on|group_left|group_right|ignoring|without) \(([^)]*)\)")
COMMAND: Final = re.compile(r"`((?:sudo )?gpud [^`]+)`")
OF_TARGETS: Final = frozenset({"job", "instance", "always_on", "pushed", "site", "owner"})
"""Labels that Prometheus gives."""
MADE: Final = re.compile(r'"(\w+)", "\w+", "", ""')
"""A label that label_replace gives whatever there is."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. ``name`` is that of the alert or of what is recorded; times are seconds."""

    name: str
    group: str
    expression: str
    is_alert: bool
    for_s: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def texts(self) -> tuple[str, ...]:
        """Every text in which an expression can be."""
        return (self.expression, *self.annotations.values())


def said(*command: str | Path, cwd: Path = FOLDER) -> str:
    """Run a program that has to find nothing wrong; gives what it prints."""
    env = {**os.environ, "GOGC": "800"}  # less work for the memory's collector of a Go program
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def read(folder: Path) -> list[Rule]:
    """Have Prometheus read the rule files; ``folder`` is for its own use."""
    with scraping.prometheus(1, folder, f"{FOLDER}/rules/*.yml") as port:
        found: Any = until(lambda: scraping.api(port, "rules"), "the rules")
    return [
        Rule(
            rule["name"],
            group["name"],
            rule["query"],
            rule["type"] == "alerting",
            rule.get("duration", 0.0),
            rule.get("labels") or {},
            rule.get("annotations") or {},
        )
        for group in found["groups"]
        for rule in group["rules"]
    ]


def documented() -> dict[str, frozenset[str]]:
    """Give every family of docs/metrics.md with its labels."""
    rows = re.findall(
        r"^\| `(gpud_\w+)` \| \w+ \|([^|]*)\|",
        (ROOT / "docs/metrics.md").read_text(),
        re.MULTILINE,
    )
    return {name: frozenset(re.findall(r"\w+", labels)) for name, labels in rows}


def commands(text: str) -> list[list[str]]:
    """Give the command lines of gpud in a text; what stands for something gets a name."""
    stand_ins = {"NAME": "launch", "SINK": "webhook"}
    plain = re.sub(r"{{.*?}}", "launch", text)
    return [
        [stand_ins.get(word, word) for word in line.removeprefix("sudo ").split()[1:]]
        for line in COMMAND.findall(plain)
    ]
