"""``gpud install`` of a wheel in one's own environment: one sudo, and root runs none of it."""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpud.install import pythons, tree
from gpud.install.console import InstallError
from gpud.install.source import FILES, Checkout, Wheel
from gpud.install.wheels import copied, digest
from gpud.verbs import bundle
from gpud.verbs import install as verb
from tests.deploy.installing import HOME, ROOT, USER, fresh, left_behind

if TYPE_CHECKING:
    from tests.overlay import Machine


def wheel_of(checkout: Path, folder: Path) -> Path:
    line = [sys.executable, "-I", "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(line, cwd=checkout, check=True, capture_output=True)
    (made,) = folder.glob("gpud-*.whl")
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel_of(ROOT, tmp_path_factory.mktemp("wheel"))


def in_own_venv(made: Machine, wheel: Path, wheels: Path) -> str:
    """Put a wheel and what it needs into an environment of the person's, as an installer does."""
    venv = f"{HOME}/venv"
    made.well("python3", "-I", "-m", "venv", "--without-pip", venv)
    (packages,) = (made.root / venv[1:]).glob("lib/python3*/site-packages")
    for each in (wheel, *wheels.glob("*.whl")):
        with zipfile.ZipFile(each) as archive:
            archive.extractall(packages)
    command = made.root / venv[1:] / "bin/gpud"
    command.write_text(
        f"#!{venv}/bin/python\nimport sys\nfrom gpud.__main__ import main\nsys.exit(main())\n"
    )
    command.chmod(0o755)
    made.well("chown", "-R", f"{USER}:", venv)
    return f"{venv}/bin/gpud"


def test_wheel_in_an_own_environment_installs_itself_and_is_gone_again(
    light: Path, tmp_path: Path
) -> None:
    wheel = wheel_of(light / "checkout", tmp_path)
    with fresh(light) as made:
        gpud = in_own_venv(made, wheel, light / "wheels")
        rule = made.root / "etc/sudoers.d/person"
        rule.write_text(f"{USER} ALL=(ALL) NOPASSWD: ALL\n")
        rule.chmod(0o440)
        before = made.changed()
        person = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups")
        asked = (*person, "env", f"HOME={HOME}", "PYTHONDONTWRITEBYTECODE=1", gpud)
        line = (*asked, "install", "--no-start", "--wheelhouse", str(light / "wheels"))
        plan = made.well(*line, "--dry-run")
        assert "would: build /opt/gpud" in plan
        assert not left_behind(made, before)
        said = made.well(*line)
        assert said.startswith(plan), "the plan is seen before root is asked for"
        assert "SHA-256 " in said
        assert made.well("gpud", "version").startswith("gpud ")
        logged = made.well("sudo", "-l", "-U", USER)
        assert "NOPASSWD: /opt/gpud/bin/gpud up" in logged
        assert (made.root / "usr/local/share/man/man1/gpud.1").exists()
        again = made.well(*line)
        assert "/opt/gpud: nothing to do" in again
        assert "would:" not in again
        made.well(*asked, "uninstall", "--purge")
        assert not left_behind(made, before)


def test_wheel_carries_what_an_installation_puts_in_place(wheel: Path) -> None:
    ours = Wheel(wheel)
    for name, path in FILES.items():
        assert ours.read(name) == (ROOT / path).read_bytes(), name
    assert ours.installer() == Checkout(ROOT).installer()


def test_all_that_a_wheel_is_made_from_is_looked_at_for_changes(tmp_path: Path) -> None:
    source = Checkout(ROOT)
    copy = source.prepared(tmp_path)
    parts = {FILES.get(name, name) for name, _ in source.parts()}
    copied_files = {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()}
    assert "docs/runbooks/GpudBreakerOpen.md" in copied_files
    assert parts == copied_files


def test_installed_files_become_the_same_wheel_again(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    (tmp_path / "site/gpud/__pycache__").mkdir()
    (tmp_path / "site/gpud/__pycache__/x.pyc").touch()
    script = "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
    script += "from gpud.verbs.bundle import repacked; repacked(Path(sys.argv[2]))"
    made: list[Path] = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        line = [
            sys.executable,
            "-I",
            "-S",
            "-c",
            script,
            str(tmp_path / "site"),
            str(tmp_path / name),
        ]
        subprocess.run(line, check=True)
        made += (tmp_path / name).iterdir()
    assert list(Wheel(made[0]).parts()) == list(Wheel(wheel).parts())
    assert made[0].read_bytes() == made[1].read_bytes()
    assert made[0].name == wheel.name


def test_root_runs_the_script_that_was_shown_or_none(tmp_path: Path) -> None:
    text = bundle.script(Checkout(ROOT).installer(), {tmp_path / "gpud-1.whl": "0" * 64})
    path = tmp_path / "script.py"
    path.write_bytes(text)
    line = bundle.line(Path(sys.executable), path, text, ["install", "--colour"])
    ran = subprocess.run(line, capture_output=True, text=True, check=False, cwd="/")
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (
        2,
        "gpud install: error: unrecognized arguments: --colour",
    )
    assert hashlib.sha256(text).hexdigest() in line
    path.write_bytes(text.replace(b"say what would", b"say which would"))
    ran = subprocess.run(line, capture_output=True, text=True, check=False, cwd="/")
    assert (ran.returncode, ran.stderr) == (1, "error: the installer changed\n")


def test_package_that_changed_since_it_was_checked_is_not_installed(tmp_path: Path) -> None:
    package = tmp_path / "numpy-1.whl"
    package.write_bytes(b"as downloaded")
    known: dict[Path, str | None] = {package: digest(package)}
    assert [path.read_bytes() for path in copied(known, tmp_path / "a").iterdir()] == [
        b"as downloaded"
    ]
    package.write_bytes(b"exchanged")
    with pytest.raises(InstallError, match="has changed since it was checked"):
        copied(known, tmp_path / "b")


def test_gpud_in_a_wheelhouse_is_not_among_the_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Wheel(tmp_path / "ours/gpud-2-py3-none-any.whl")
    for name in ("gpud-1-py3-none-any.whl", ours.path.name, "numpy-1.whl"):
        (tmp_path / name).touch()
    monkeypatch.setattr(tree, "fingerprint", lambda *_, **__: "")
    options = argparse.Namespace(wheelhouse=str(tmp_path), with_extra=None)
    assert list(verb._packages(options, ours, tmp_path)) == [tmp_path / "numpy-1.whl"]


def test_root_runs_no_python_that_a_user_can_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pythons, "NAMES", ())
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("root ran something"))
    ours = tmp_path / "gpud-1.whl"
    with zipfile.ZipFile(ours, "w"):
        pass
    with pytest.raises(InstallError, match="that belongs to root below"):
        verb._as_root(Wheel(ours), {}, argparse.Namespace(verb="uninstall"), [])
