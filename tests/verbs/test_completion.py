"""TAB in three real shells, with the scripts where deploy/install puts them."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from gpud import discovery
from gpud.child import probes
from gpud.verbs import completion
from tests.verbs.windows import Window, window

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROMPT = "ready> "


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
    program = tmp_path / "bin/gpud"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "got:$*"\n')
    program.chmod(0o755)
    environ = {"HOME": str(tmp_path), "PATH": f"{program.parent}:/usr/bin:/bin", "PS1": PROMPT}
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


def test_tab_lists_the_probes_before_anything_is_typed(shell: Window) -> None:
    shell.send("gpud probe \t\t")
    shell.expect("cpu_matmul")
    shell.expect("nbody")


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("gpud stat", "gpud status "),
        ("gpud status --wat", "gpud status --watch "),
        ("gpud probe nbo", "gpud probe nbody "),
        ("gpud alerts test webh", "gpud alerts test webhook "),
        ("gpud history export -o hist", "gpud history export -o history.csv "),
        ("gpud history --mode roundtrip_", "gpud history --mode roundtrip_cold "),
        ("gpud baseline accept cpu_c", "gpud baseline accept cpu_call "),
    ],
)
def test_tab_completes(shell: Window, typed: str, completed: str) -> None:
    shell.send(f"{typed}\t")
    # What a shell redraws may come in pieces; what counts is what it hands to the command.
    shell.expect(completed.rpartition(" ")[0].rpartition(" ")[2][len(typed.rpartition(" ")[2]) :])
    shell.send("\r")
    shell.expect(f"got:{completed.removeprefix('gpud ').strip()}\r\n")


@pytest.mark.parametrize("name", SHELLS)
def test_script_is_readable_complete_and_names_its_origin(name: str) -> None:
    script = completion.script(name)
    first = script.splitlines()[name == "zsh"]
    assert first.startswith(f"# Made by `gpud completion {name}`")
    assert "Copy this" not in script
    assert script.startswith("#compdef gpud\n") is (name == "zsh")
    for word in (*discovery.names(probes), "status", "history", "export", "webhook"):
        assert word in script, word
    if shutil.which(name) is not None:
        option = "--no-execute" if name == "fish" else "-n"
        line = [name, option]
        done = subprocess.run(line, input=script, text=True, check=False, capture_output=True)
        assert (done.returncode, done.stderr) == (0, "")
