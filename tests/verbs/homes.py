"""Homes of gpud for tests of its verbs, and three ways to run one: called, started, as nobody."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pwd
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from gpud import cli
from gpud.agent.state.status import document
from gpud.core.clock import Instant
from gpud.core.proc import start_ticks
from tests import snapshots
from tests.e2e.program import as_nobody
from tests.terminals import ENVIRONMENT
from tests.waiting import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Mapping

COMMAND = Path(sys.executable).parent / "gpud"
"""What a development run calls itself in a fix."""


def well() -> dict[str, Any]:
    """The document of a machine on which all is well, written now."""
    now = Instant(time.time(), snapshots.NOW.mono_s)
    published: dict[str, Any] = msgspec.to_builtins(document(snapshots.full(), now=now))
    health = {"level": 0, "reason": None, "detail": None, "fix": None, "since_s": time.time()}
    published["health"] = dict.fromkeys(published["health"], health)
    return published | {"state": "ok", "alerts": [], "breaker": None}


def write(home: Path, published: Mapping[str, Any]) -> None:
    """Put a document in its place as the agent does."""
    run_dir = home / "run/gpud"
    run_dir.mkdir(parents=True, exist_ok=True)
    fresh = run_dir / "agent.tmp"
    fresh.write_text(json.dumps(published))
    fresh.rename(run_dir / "agent.json")


def running(home: Path, published: Mapping[str, Any]) -> Path:
    """Make it a home in which this very process stands for root."""
    write(home, published)
    ticks = start_ticks(Path("/proc/self/stat").read_text())
    (home / "run/gpud/root.pid").write_text(f"{os.getpid()} {ticks}\n")
    return home


def configured(home: Path, text: str, name: str = "gpud.toml", mode: int = 0o640) -> Path:
    """Write a settings file that the agent's user can read too, and return it."""
    path = home / "etc/gpud" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if os.geteuid() == 0:
        os.chown(path, -1, pwd.getpwnam("nobody").pw_gid)
    path.chmod(mode)
    return path


def gpud(home: Path | str, *words: str) -> list[str]:
    """The line that starts a verb."""
    return [sys.executable, "-I", "-m", "gpud", "--home", str(home), *words]


@dataclass(frozen=True)
class Ran:
    """How a verb ended, and what it printed."""

    code: int
    out: str
    err: str


def called(home: Path, *words: str, **environ: str) -> Ran:
    """Run a verb in this process: for what depends on no other."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        for name in set(os.environ) - {"PATH"}:
            patch.delenv(name)
        for name, value in {**ENVIRONMENT, **environ}.items():
            patch.setenv(name, value)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.main(["--home", str(home), *words])
    return Ran(code, *(stream.buffer.getvalue().decode() for stream in _flushed(out, err)))


def _flushed(*streams: io.TextIOWrapper) -> list[Any]:
    for stream in streams:
        stream.flush()
    return list(streams)


def started(
    home: Path | str, *words: str, nobody: bool = False, stdin: str = "", **environ: str
) -> Ran:
    """Run a verb in a process of its own, as nobody if that is asked for."""
    line = [*(as_nobody(Path(home)) if nobody else ()), *gpud(home, *words)]
    done = subprocess.run(
        line,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
        cwd="/",
        env=ENVIRONMENT | environ,
    )
    return Ran(done.returncode, done.stdout, done.stderr)
