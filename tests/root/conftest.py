from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RUN = """
import sys, json, msgspec
from gpud.core.settings import Settings
from gpud.root import agent, control, report
report.BEAT_S = 0.2
given = json.loads(sys.argv[1])
settings = msgspec.convert(given["settings"], Settings)
agent.default_command = lambda *_: given["agent"]
sys.exit(control.run(settings, config_path=None, foreground=False))
"""
"""A supervisor that reports often, and so looks often whether its directories are there."""


@dataclass
class Supervised:
    """A supervisor in a process of its own, in a home of its own."""

    home: Path
    settings: dict[str, Any]
    agent: list[str] = field(default_factory=lambda: ["/bin/sleep", "1000"])
    process: subprocess.Popen[bytes] | None = None
    prefix: list[str] = field(default_factory=list)  # a command that ends in exec
    program: str = RUN

    def start(self, terminal: int | None = None) -> None:
        arguments = json.dumps(
            {"settings": {"home": str(self.home), **self.settings}, "agent": self.agent}
        )
        self.process = subprocess.Popen(
            [*self.prefix, sys.executable, "-I", "-c", self.program, arguments],
            stdout=terminal,
            stderr=terminal,
        )
        pid = self.process.pid
        until(lambda: (self.report() or {}).get("process", {}).get("pid") == pid, "its report")

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(LIMIT_S)
        self.process = None
        return code

    def report(self) -> dict[str, Any] | None:
        with contextlib.suppress(OSError):
            status: dict[str, Any] = json.loads((self.home / "run/gpud/root.json").read_bytes())
            return status
        return None

    def when(self, good: Callable[[dict[str, Any]], object], what: str) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            status = self.report()
            return status if status is not None and good(status) else None

        try:
            return until(look, what)
        except AssertionError as error:
            logs = "".join(
                f"\n== {log.name}\n{log.read_text(errors='replace')[-3000:]}"
                for log in (self.home / "var/log/gpud").glob("*.log")
            )
            raise AssertionError(f"{error}\n{self.report()}{logs}") from None

    def agent_pid(self, but: int | None = None) -> int:
        """Wait for an agent, ``but`` for this one."""

        def another(status: dict[str, Any]) -> bool:
            return (status["agent"]["process"] or {}).get("pid") not in {None, but}

        pid: int = self.when(another, "an agent")["agent"]["process"]["pid"]
        return pid


@pytest.fixture
def supervised(request: pytest.FixtureRequest) -> Iterator[Supervised]:
    if "dockerd" in request.fixturenames:
        # Made before, so removed after: a supervisor would start a dockerd that a test took away.
        request.getfixturevalue("dockerd")
    home = Path(tempfile.mkdtemp(prefix="gpud-root-"))
    home.chmod(0o755)
    made = Supervised(home, {"dockerd": {"policy": "off"}})
    try:
        yield made
    finally:
        if made.process is not None and made.process.poll() is None:
            made.stop()
        shutil.rmtree(home, ignore_errors=True)
