"""TAB in three real shells, with the scripts where deploy/install puts them."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from gpud import discovery
from gpud.agent.state.status import document
from gpud.child import probes
from gpud.verbs import completion
from tests import snapshots
from tests.terminals import Window, window
from tests.verbs import homes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROMPT = "ready> "
UUID = "GPU-c0ffee00-1111-2222-3333-444455556666"
FIRES = snapshots.SLOWER.fingerprint


def published() -> dict[str, Any]:
    """Return the status of an agent with an alert that fires, one that ended, and GPU 17."""
    status: dict[str, Any] = msgspec.to_builtins(document(snapshots.full(), now=snapshots.NOW))
    (alert,) = status["alerts"]
    ended = {"fingerprint": FIRES[:3] + "0" * 13, "firing": False, "ends_s": snapshots.NOW.wall_s}
    gpu = dict(next(iter(status["gpus"].values()))) | {"number": 17}
    return status | {"alerts": [alert, alert | ended], "gpus": {UUID: gpu}}


SHELLS = ("bash", "zsh", "fish")


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Window]:
    """A shell that knows a command gpud and has loaded its completion."""
    name: str = request.param
    if shutil.which(name) is None:
        pytest.skip(f"no {name} here")
    script = tmp_path / {"bash": "gpud", "zsh": "_gpud", "fish": "gpud.fish"}[name]
    script.write_text(completion.script(name))
    (tmp_path / "history.csv").touch()
    homes.write(tmp_path, published())
    program = tmp_path / "bin/gpud"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "got:$*"\n')
    program.chmod(0o755)
    environ = {"HOME": str(tmp_path), "PATH": f"{program.parent}:/usr/bin:/bin", "PS1": PROMPT}
    environ["GPUD_HOME"] = str(tmp_path)
    argv, begin = {
        "bash": (["bash", "--norc", "-i"], f"source {script}"),
        "zsh": (
            ["zsh", "-f", "-i"],
            f"fpath=({tmp_path} $fpath); autoload -U compinit; compinit -u -D; setopt no_beep",
        ),
        "fish": (
            ["fish", "--no-config", "-i"],
            f"function fish_prompt; echo -n '{PROMPT}'; end; source {script}",
        ),
    }[name]
    with window(argv, columns=200, environ=environ) as shown:
        if name != "fish":
            shown.expect(PROMPT)
        else:
            shown.expect(r"[>#] ")
        shown.send(f"cd {tmp_path}; {begin}; echo set''up\r")
        shown.expect("setup\r\n")
        shown.expect(PROMPT)
        yield shown


COMPLETED = (
    ("gpud stat", "gpud status "),
    ("gpud probe launch nbo", "gpud probe launch nbody "),
    ("gpud alerts test webh", "gpud alerts test webhook "),
    ("gpud capture -o hist", "gpud capture -o history.csv "),
    ("gpud history --mode roundtrip_", "gpud history --mode roundtrip_cold "),
    (f"gpud alerts ack {FIRES[:3]}", f"gpud alerts ack {FIRES[:8]} "),
    (f"gpud baseline accept {FIRES[:3]}", f"gpud baseline accept {FIRES[:8]} "),
    ("gpud status --sho", "gpud status --short "),
    ("gpud probe --gpu 1", "gpud probe --gpu 17 "),
    ("gpud history --gpu c", "gpud history --gpu cpu "),
    (f"gpud gpus forget {UUID[:9]}", f"gpud gpus forget {UUID} "),
)


def test_tab_completes_verbs_options_and_names_that_the_agent_knows(shell: Window) -> None:
    for typed, completed in COMPLETED:
        completes(shell, typed, completed)


def completes(shell: Window, typed: str, completed: str) -> None:
    shell.send(f"{typed}\t")
    # What a shell redraws may come in pieces; what counts is what it hands to the command.
    shell.expect(completed.rpartition(" ")[0].rpartition(" ")[2][len(typed.rpartition(" ")[2]) :])
    shell.send("\r")
    shell.expect(f"got:{completed.removeprefix('gpud ').strip()}\r\n")
    shell.expect(PROMPT)


def test_tab_returns_whatever_stands_in_place_of_the_status(shell: Window, tmp_path: Path) -> None:
    path = tmp_path / "run/gpud/agent.json"
    for put in (os.mkfifo, lambda path: path.symlink_to("/dev/zero"), endless):
        path.unlink()
        put(path)
        completes(shell, "gpud probe --gpu cp", "gpud probe --gpu cpu ")


def endless(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


@pytest.mark.parametrize("name", SHELLS)
def test_script_is_readable_and_complete(name: str) -> None:
    script = completion.script(name)
    assert script.startswith("#compdef gpud\n") is (name == "zsh")
    for word in (*discovery.names(probes), "status", "history", "export", "webhook"):
        assert word in script, word
    if shutil.which(name) is not None:
        option = "--no-execute" if name == "fish" else "-n"
        line = [name, option]
        done = subprocess.run(line, input=script, text=True, check=False, capture_output=True)
        assert (done.returncode, done.stderr) == (0, "")
