"""Every expression is one that Prometheus reads."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

from tests.grafana import dashboards

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FILLED = {"__rate_interval": "5m", "__range": "1h"}


def promtool(expressions: Iterable[str], file: Path) -> subprocess.CompletedProcess[str]:
    """Have each expression judged as a recording rule; JSON is YAML too."""
    rules = [{"record": f"try:{n}", "expr": text} for n, text in enumerate(expressions)]
    file.write_text(json.dumps({"groups": [{"name": "tried", "rules": rules}]}))
    command = ["promtool", "check", "rules", "--lint=none", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def all_of_them() -> list[str]:
    names = dict.fromkeys(("job", "instance", "gpu", "probe", "mode", "model", "driver"), "x")
    return [
        dashboards.filled(asked.expression, names | FILLED)
        for dashboard in dashboards.committed().values()
        for asked in dashboards.every(dashboard)
    ]


def test_promtool_reads_every_expression(tmp_path: Path) -> None:
    expressions = all_of_them()
    done = promtool(expressions, tmp_path / "rules.yml")
    assert done.returncode == 0, done.stderr
    assert f"{len(expressions)} rules found" in done.stdout


def test_promtool_would_tell_of_one_that_is_none(tmp_path: Path) -> None:
    done = promtool([*all_of_them(), "rate(gpud_x[5m]"], tmp_path / "rules.yml")
    assert done.returncode == 1
    assert "unclosed left parenthesis" in done.stderr
