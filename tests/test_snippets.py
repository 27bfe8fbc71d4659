"""The two files that a person puts into their system by hand."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_the_sudo_rule_is_accepted_by_visudo() -> None:
    checked = subprocess.run(
        ["/usr/sbin/visudo", "-cf", ROOT / "sudoers.snippet"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr


def test_the_sudo_rule_names_exact_commands_without_wildcards() -> None:
    rules = [
        line
        for line in (ROOT / "sudoers.snippet").read_text().splitlines()
        if not line.startswith("#")
    ]
    assert not [line for line in rules if set("*?[") & set(line)]


@pytest.mark.parametrize("options", [["-i"], []], ids=["interactive", "not interactive"])
def test_the_shell_hook_is_silent_and_harmless_where_gpud_is_not_installed(
    options: list[str], tmp_path: Path
) -> None:
    script = f"set -e; source {ROOT / 'bashrc.snippet'}; declare -F; echo done"
    shell = subprocess.run(
        ["bash", "--norc", "--noprofile", *options, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        start_new_session=True,
    )
    assert (shell.returncode, shell.stdout) == (0, "done\n")
    assert "gpud" not in shell.stderr
