"""The shell files: what they promise before anything is set up."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpud.install import options

ROOT = Path(__file__).resolve().parents[2]
SHEBANG = b"#!/usr/bin/env bash\n"


def committed() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [Path(name) for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def bash_scripts() -> list[Path]:
    return [path for path in committed() if (ROOT / path).read_bytes().startswith(SHEBANG)]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Give a directory with the scripts and without a virtual environment."""
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    return tmp_path


def test_shellcheck_has_nothing_to_say_about_any_shell_file() -> None:
    scripts = bash_scripts()
    assert {Path("deploy/run"), Path("deploy/test"), Path(".ci/run")} <= set(scripts)
    others = [Path(f"deploy/{name}") for name in ("lib.sh", "gpud-start", "gpud-command")]
    others += [Path(f"deploy/debian/{name}") for name in ("config", "postinst", "prerm", "postrm")]
    files = [*scripts, *others, *(path for path in committed() if path.suffix == ".sh")]
    for arguments in (
        ["--external-sources", *map(str, sorted(set(files)))],
        ["--shell=bash", "bashrc.snippet"],
    ):
        line = ["shellcheck", *arguments]
        checked = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout
    for script in scripts:
        text = (ROOT / script).read_text()
        assert (ROOT / script).stat().st_mode & 0o111, script
        assert "set -euo pipefail" in text or "exec deploy/test" in text, script


@pytest.mark.parametrize("script", ["run", "test"])
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_is_there_before_anything_is_set_up(
    script: str, option: str, checkout: Path, tmp_path: Path
) -> None:
    before = set(tmp_path.rglob("*"))
    shown = subprocess.run(
        [checkout / "deploy" / script, option],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith(f"usage: deploy/{script}")
    assert set(tmp_path.rglob("*")) == before


def test_a_machine_without_a_usable_python_is_told_what_to_do(
    checkout: Path, tmp_path: Path
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "env", "stat", "mkdir", "touch", "flock", "cat", "sed", "setpriv"):
        (tools / name).symlink_to(shutil.which(name) or "/usr/bin/" + name)
    shown = subprocess.run(
        ["/bin/bash", checkout / "deploy" / "run", "--setup-only", "--no-root"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": str(tools)},
    )
    # sbin directories are always looked in, and hold no Python
    assert shown.returncode == 1
    assert "no Python 3.11 or newer" in shown.stderr
    assert "fix:" in shown.stderr
    assert not (checkout / ".venv").exists()


def without_python(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run deploy/install where there is no Python, up to the first change or look at packages."""
    script, sudo = checkout / "deploy/install", checkout / "sudo"
    head, mark, tail = (ROOT / "deploy/install").read_text().partition("\nPYTHON=$(find_python) ")
    assert mark
    none = "\nfind_python() { false; }\n_find_python() { false; }"
    ends = "".join(f"\n{name}() {{ die reached {name}; }}" for name in ("mkdir", "python_package"))
    script.write_text(f"{head}{none}{ends}{mark}{tail}")
    sudo.write_text("#!/bin/sh\necho reached sudo >&2\n")
    sudo.chmod(0o755)
    environ = {**os.environ, "PATH": f"{checkout}:{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", script, *words], capture_output=True, text=True, check=False, env=environ
    )


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["--help"], 0, ""),
        (["--no-start", "-h"], 0, ""),
        (["--colour"], 2, "--colour is no option of this"),
        (["--user", "--dry-run"], 2, "--user needs a value"),
        (["--with", "all"], 2, "--with=all is no option of this"),
        (["--user", "nobody-here"], 1, "there is no user nobody-here"),
    ],
)
def test_installer_reads_its_options_before_it_installs_a_python(
    words: list[str], code: int, error: str, checkout: Path
) -> None:
    ran = without_python(checkout, *words)
    assert (ran.returncode, error in ran.stderr, "reached" in ran.stderr) == (code, True, False)
    assert ran.stdout.startswith("usage: ") == (code == 0)


def test_installer_knows_every_option_before_there_is_a_python(checkout: Path) -> None:
    for (name, *_), row in options.INSTALL:
        value = [row.get("choices", ["root"])[0]] if "metavar" in row else []
        ran = without_python(checkout, name, *value)
        assert "reached" in ran.stderr, name


INSTALLER_SEES = """import shutil, sys, tempfile; sys.path.insert(0, sys.argv[1])
from gpud.install.__main__ import guarded
guarded(lambda: print(tempfile.gettempdir(), shutil.which("visudo")) or 0)"""


@pytest.mark.skipif(os.geteuid() != 0, reason="others have a PATH and a directory of their own")
def test_root_runs_no_program_and_makes_no_temporary_file_where_the_caller_says(
    tmp_path: Path,
) -> None:
    for name in ("stat", "find", "readlink", "id", "getent", "visudo"):
        text = f'#!/bin/sh\necho {name} >>{tmp_path}/ran\nexec /usr/bin/{name} "$@"\n'
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "TMPDIR": str(tmp_path)}
    for script in ("install", "uninstall"):
        line = [str(ROOT / "deploy" / script), "--help"]
        subprocess.run(line, env=environ, check=True, capture_output=True)
        assert not (tmp_path / "ran").exists(), script
    line = [sys.executable, "-I", "-c", INSTALLER_SEES, str(ROOT)]
    shown = subprocess.run(line, env=environ, capture_output=True, text=True, check=True)
    folder, visudo = shown.stdout.split()
    assert str(tmp_path) not in {folder, str(Path(visudo).parent)}


def test_ctrl_c_ends_a_script_whose_child_catches_it(checkout: Path) -> None:
    child = (
        "import signal, sys; signal.signal(signal.SIGINT, lambda *_: sys.exit(0));"
        "print('ready', flush=True); signal.pause()"
    )
    line = f'set -euo pipefail; . deploy/lib.sh; {sys.executable} -c "{child}"; echo went on'
    with subprocess.Popen(
        ["env", "--default-signal", "bash", "-c", line],
        cwd=checkout,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as script:
        assert script.stdout is not None
        assert script.stdout.readline() == "ready\n"
        os.killpg(script.pid, signal.SIGINT)
        assert script.communicate()[0] == ""
    assert script.returncode == 130


@pytest.mark.parametrize("chosen", ["elsewhere", ""])
def test_run_keeps_its_files_below_gpud_home(checkout: Path, chosen: str) -> None:
    shutil.copy(ROOT / "pyproject.toml", checkout)
    programs = checkout / ".venv/bin"
    programs.mkdir(parents=True)
    (programs / "python").symlink_to(sys.executable)
    (programs / "gpud").write_text('#!/bin/sh\necho "$@"\n')
    (programs / "gpud").chmod(0o755)
    shutil.copytree(ROOT / "gpud/install", checkout / "gpud/install")
    shutil.copy(ROOT / "gpud/__init__.py", checkout / "gpud")
    made_from = "import sys; sys.path.insert(0, 'deploy'); import checkout\n"
    made_from += "print(checkout.made_from('requirements.txt'))"
    line = [sys.executable, "-c", made_from]
    stamp = subprocess.run(line, cwd=checkout, capture_output=True, check=True).stdout
    (checkout / ".venv/.gpud-setup").write_bytes(stamp)
    home = str(checkout / chosen) if chosen else ""
    log = checkout / ".gpud/setup.log"
    log.parent.mkdir()
    log.write_text("before\n")
    ran = subprocess.run(
        ["deploy/run", "--no-docker", "--no-root", "--config", "x"],
        cwd=checkout,
        env={**os.environ, "GPUD_HOME": home},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"--home {home or checkout / '.gpud'} run --config x\n" in ran.stdout
    assert log.read_text().startswith("before\n"), "why a set-up failed stays"


def test_continuous_integration_runs_the_same_command_as_a_person() -> None:
    assert (ROOT / ".ci" / "run").read_text().splitlines()[1:] == [
        'cd -- "${BASH_SOURCE[0]%/*}/.." && exec deploy/test "$@"'
    ]
