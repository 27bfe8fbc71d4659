"""``gpud status --short``, and the file that a prompt reads without a process."""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpud.agent.state import files
from gpud.agent.state.board import Board
from gpud.agent.ticks import TICK_S
from gpud.core.clock import Instant
from gpud.core.health import Health, Level
from tests import snapshots, waiting
from tests.verbs import homes
from tests.verbs.homes import Ran, called

if TYPE_CHECKING:
    from collections.abc import Callable

DOCUMENT = Path(__file__).parents[2] / "docs/terminal.md"
BROKEN = Health(Level.FAILED, "lost")


def written(home: Path, line: str) -> Path:
    """Write the agent's line in a home in which gpud runs."""
    homes.running(home, homes.well())
    path = home / "run/gpud/agent/short"
    path.parent.mkdir(exist_ok=True)
    path.write_text(line)
    return path


@pytest.mark.parametrize(("code", "words"), [(0, "gpud ok"), (1, "gpud dockerd restarting (+1)")])
def test_line_of_the_agent_is_printed_with_the_exit_code_of_status_while_gpud_runs(
    tmp_path: Path, code: int, words: str
) -> None:
    written(tmp_path, f"{time.time():.0f} {code} {words}\n")
    assert called(tmp_path, "status", "--short") == Ran(code, f"{words}\n", "")
    (tmp_path / "run/gpud/root.pid").unlink()
    assert called(tmp_path, "status", "--short") == Ran(3, "gpud is not running\n", "")


@pytest.mark.parametrize(
    "line",
    ["1000 0 gpud ok\n", "{now} 0 gpud \x1b[2J\n", "{now} 7 gpud ok\n", "", "{now} 0 gpud ok"],
    ids=["old", "hostile", "no exit code", "empty", "cut off"],
)
def test_line_that_is_not_of_now_is_not_shown(tmp_path: Path, line: str) -> None:
    written(tmp_path, line.format(now=int(time.time())))
    starting = Ran(3, "gpud runs, and its agent is starting\n", "")
    assert called(tmp_path, "status", "--short") == starting


async def test_agent_writes_the_line_when_its_words_change_and_removes_it_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LATEST_S", TICK_S + 0.1)
    clock = snapshots.NOW
    board, path = Board(snapshots.full()), tmp_path / "short"
    task = asyncio.create_task(files.write_status(tmp_path, board, lambda: clock))

    async def until(holds: Callable[[], bool]) -> None:
        await asyncio.to_thread(waiting.until, holds, "the file")

    await until(path.exists)
    assert path.read_text() == f"{clock.wall_s:.0f} 1 gpud gpu hung (+3)\n"
    before, document = path.stat().st_ino, (tmp_path / "agent.json").stat().st_ino
    board.count_process()  # news, and the same words
    await until(lambda: (tmp_path / "agent.json").stat().st_ino != document)
    assert path.stat().st_ino == before
    clock = Instant(clock.wall_s + files.SHORT_S, clock.mono_s + files.SHORT_S)
    await until(lambda: path.read_text() == f"{clock.wall_s:.0f} 1 gpud gpu hung (+3)\n")
    board.set_health("store", BROKEN)
    await until(lambda: path.read_text() == f"{clock.wall_s:.0f} 1 gpud gpu hung (+4)\n")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not path.exists()


def example(shell: str, path: Path) -> str:
    """Take the example for a shell's rc file out of the documentation."""
    block = re.search(rf"```{shell}\n(read_gpud\(\).*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert block is not None
    return block[1].replace("/run/gpud/agent/short", str(path))


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("{now} 0 gpud ok\n", "gpud ok"),
        ("1000 0 gpud ok\n", "gpud ?"),
        ("a[$(touch {made})] 0 gpud ok\n", "gpud ?"),
        ("{now} 0 $(touch {made})`touch {made}`\n", "$(touch "),
        (None, "gpud ?"),
    ],
    ids=["well", "old", "hostile time", "hostile words", "missing"],
)
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_prompt_of_the_documentation_shows_the_line_without_a_process(
    tmp_path: Path, shell: str, line: str | None, shown: str
) -> None:
    path, made = tmp_path / "short", tmp_path / "made"
    if line is not None:
        path.write_text(line.format(now=int(time.time()), made=made))
    text = example(shell, path)
    assert len(text.splitlines()) == 2
    assert not re.search(r"\$\([^(]|`|(?<!\|)\|(?!\|)", text)  # nothing that starts a process
    show = {"bash": 'eval "$PROMPT_COMMAND"; echo "${PS1@P}"', "zsh": 'read_gpud; print -P "$PS1"'}
    quiet = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"]}
    done = subprocess.run(
        [shell, *quiet[shell], "-c", f"{text}\n{show[shell]}"],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "LANG": "C"},
        check=True,
    )
    assert done.stdout.startswith(f"[{shown}")
    assert (done.stderr, made.exists()) == ("", False)
