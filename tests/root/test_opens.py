"""Root's own processes, listened to: they open nothing that the agent may have put there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.program import Program, only, program
from tests.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the agent runs as another user")

AUDITED = """
import os, runpy, sys
record, *words = sys.argv[1:]
busy = False
def heard(event, arguments):
    global busy
    if event != "open" or busy or isinstance(arguments[0], int):
        return
    busy = True
    path, flags = os.fsdecode(arguments[0]), arguments[2]
    if not flags & os.O_NOFOLLOW:
        path = os.path.realpath(path)
    if not flags & os.O_PATH:
        file = os.open(record, os.O_WRONLY | os.O_APPEND)
        os.write(file, f"{'folder' if flags & os.O_DIRECTORY else 'file'} {path}\\n".encode())
        os.close(file)
    busy = False
from gpud.verbs import service
service.ANSWERS_S = 60.0
sys.addaudithook(heard)
sys.argv = ["gpud", *words]
runpy.run_module("gpud", run_name="__main__")
"""
OF_THE_AGENT = ("run/gpud/agent", "run/gpud/api", "var/lib/gpud", "var/log/gpud/agent")


def reported_again(report: Path) -> None:
    """Wait until root has been round its loop for a while."""
    first = report.stat().st_mtime
    until(lambda: report.stat().st_mtime > first, "another report of root's")


@pytest.fixture
def gpud() -> Iterator[Program]:
    with program(agent={"user": "nobody"}, probes=only("cpu_call")) as made:
        made.write_settings()
        try:
            yield made
        finally:
            made.cli("down")


def test_root_opens_no_file_in_a_folder_of_the_agents(gpud: Program) -> None:
    record = gpud.home / "opened"
    record.touch()
    for verb in ("up", "restart", "down"):
        line = [sys.executable, "-I", "-c", AUDITED, str(record), "--home", str(gpud.home), verb]
        subprocess.run(line, check=True, timeout=LIMIT_S, cwd="/")
        if verb != "down":
            reported_again(gpud.run_dir / "root.json")
    opened = {tuple(text.split(" ", 1)) for text in record.read_text().splitlines()}
    folders = [gpud.home / place for place in OF_THE_AGENT]
    assert ("folder", str(folders[0])) in opened, "root makes it"
    assert all(folder.stat().st_uid != 0 for folder in folders)
    inside = [path for _, path in opened if any(folder in Path(path).parents for folder in folders)]
    assert inside == []
