"""The Debian package, made of this checkout, on an overlay of this machine."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.deploy.installing import ROOT, USER, fresh, install, left_behind, uninstall

if TYPE_CHECKING:
    from pathlib import Path

    from tests.overlay import Machine

PYTHON = (sys.executable, "-I", "-B")
OWNER = "owner /usr/lib/gpud/install"


@pytest.fixture(scope="module")
def package(light: Path) -> Path:
    shutil.copytree(light / "wheels", light / "with-an-older")
    (light / "with-an-older/gpud-0.0.1-py3-none-any.whl").touch()
    build = [*PYTHON, str(light / "checkout/deploy/debian/build.py")]
    subprocess.run([*build, "--wheelhouse", light / "with-an-older", light], check=True)
    (made,) = light.glob("gpud_*.deb")
    return made


def answer(made: Machine, user: str) -> None:
    """Answer the package's question before it is asked."""
    chosen = f"echo gpud gpud/user string {user} | debconf-set-selections"
    made.well("sh", "-c", chosen)


def of_gpud(made: Machine, before: dict[str, str]) -> dict[str, str]:
    """Return what is not as it was, but for files of dpkg, of debconf and of `another_python`."""
    theirs = ("var/lib/dpkg/", "var/cache/debconf/", "var/log/dpkg.log", "usr/bin/python3")
    left = left_behind(made, before)
    return {name: what for name, what in left.items() if not name.startswith(theirs)}


def test_package_installs_is_changed_by_nobody_else_and_leaves_nothing(
    light: Path, package: Path
) -> None:
    with fresh(light) as made:
        before = made.changed()
        answer(made, USER)
        made.well("dpkg", "-i", str(package))
        manifest = (made.root / "etc/gpud/manifest").read_text().splitlines()
        assert [line for line in manifest if line.startswith("owner ")] == [OWNER]
        for line in (
            install(light, "--no-start"),
            [*install(light), "--dry-run"],
            uninstall(light),
            ["/opt/gpud/deploy/uninstall"],
            ["gpud", "install"],
        ):
            refused = made.run(*line)
            assert refused.returncode == 1, line
            assert "error: gpud was installed by its Debian package" in refused.stderr
            assert "sudo apt-get remove gpud removes it" in refused.stderr
        again = made.run("dpkg", "-i", str(package))
        assert (again.returncode, "/opt/gpud: nothing to do" in again.stderr) == (0, True)
        _python_that_no_wheel_is_for(made)
        made.well("install", "-d", "-o", "gpud", "/var/lib/gpud")
        made.well("install", "-o", "gpud", "/etc/hostname", "/var/lib/gpud/gpud.db")
        assert "kept: /var/lib/gpud" in made.well("dpkg", "-r", "gpud")
        made.well("cmp", "/etc/hostname", "/var/lib/gpud/gpud.db")
        made.well("dpkg", "-P", "gpud")
        assert not of_gpud(made, before)


def _python_that_no_wheel_is_for(made: Machine) -> None:
    """Say in one line what to do; the upgrade of the distribution goes on."""
    another_python(made)
    wheels = made.root / "usr/lib/gpud/wheels"
    ours = {path: path.name.replace("-cp311-cp311-", "-cp310-cp310-") for path in wheels.iterdir()}
    for path, name in ours.items():
        path.rename(path.with_name(name))
    assert "Run /usr/lib/gpud/install again." in made.run("gpud", "version").stderr
    said = triggered(made)
    line = "gpud: no packages for this Python are here; the index has them: /usr/lib/gpud/install"
    assert f"{line} --from-index\n" in said
    for path, name in ours.items():
        path.with_name(name).rename(path)


def another_python(made: Machine) -> None:
    """Exchange the distribution's Python as its upgrade does."""
    old = made.well("readlink", "-e", "/usr/bin/python3").strip()
    made.well("mv", old, "/usr/bin/python3.14")
    made.well("ln", "-sf", "python3.14", "/usr/bin/python3")


def triggered(made: Machine) -> str:
    """Do what dpkg does once the old Python is gone, and give what it says."""
    made.well("dpkg-trigger", "--by-package=python3.11-minimal", "/usr/bin/python3.11")
    ran = made.run("dpkg", "--triggers-only", "gpud")
    assert ran.returncode == 0, ran.stderr
    return ran.stdout + ran.stderr


def test_package_says_how_many_kib_its_files_take(package: Path, tmp_path: Path) -> None:
    said = subprocess.check_output(["dpkg-deb", "-f", package, "Installed-Size"], text=True)
    subprocess.run(["dpkg-deb", "-x", package, tmp_path], check=True)
    sizes = [path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()]
    assert sum(sizes) <= 1024 * int(said) < sum(sizes) + 1024 * len(sizes)


def test_package_that_is_removed_leaves_what_another_way_installed(
    small: Machine, light: Path, package: Path
) -> None:
    with fresh(light, small.changes) as made:
        answer(made, "nobody-here")
        refused = made.run("dpkg", "-i", str(package))
        assert refused.returncode == 1
        assert "error: there is no user nobody-here" in refused.stderr
        said = made.well("dpkg", "-P", "gpud")
        assert "deploy/install installed it, and it stays" in said
        assert made.well("gpud", "version").startswith("gpud ")
        assert (made.root / "etc/gpud/manifest").exists()


def test_a_user_who_is_not_there_is_named_with_the_line_that_mends_it(
    light: Path, package: Path
) -> None:
    with fresh(light) as made:
        answer(made, "nobody-here")
        refused = made.run("dpkg", "-i", str(package))
        assert "error: there is no user nobody-here" in refused.stderr
        (fix,) = re.findall(r"fix: (.*)", refused.stderr)
        made.well("sh", "-ec", fix.replace("NAME", USER))
        assert made.well("gpud", "version").startswith("gpud ")


def test_purge_takes_nothing_of_another_project(light: Path, package: Path) -> None:
    with fresh(light) as made:
        for name in ("/var/lib/gpud/gpud.state", "/etc/gpud/other", "/var/log/gpud/other"):
            made.well("install", "-D", "/etc/hostname", name)
        before = made.changed()
        answer(made, USER)
        refused = made.run("dpkg", "-i", str(package))
        assert "belongs to another project" in refused.stderr
        made.well("dpkg", "-P", "gpud")
        left = {*before} - {*made.changed()}
        assert not left


def test_wheelhouse_that_is_not_there_makes_no_package(tmp_path: Path) -> None:
    build = [*PYTHON, str(ROOT / "deploy/debian/build.py")]
    line = [*build, "--wheelhouse", str(tmp_path / "none"), str(tmp_path)]
    ran = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (
        2,
        f"deploy/build-deb: error: there is no directory {tmp_path}/none",
    )


@pytest.mark.soak
def test_package_takes_over_from_a_checkout_and_builds_for_another_python(
    light: Path, package: Path
) -> None:
    with fresh(light) as made:
        before = made.changed()
        made.well(*install(light, "--no-start"))
        (made.root / "etc/gpud/gpud.toml").write_text("[log]\nlevel = 'debug'\n")
        answer(made, USER)
        made.well("dpkg", "-i", str(package))
        manifest = (made.root / "etc/gpud/manifest").read_text().splitlines()
        assert [line for line in manifest if line.startswith("owner ")] == [OWNER]
        assert "debug" in made.well("gpud", "config", "show")
        another_python(made)
        assert "/opt/gpud: put in place" in triggered(made)
        made.well("gpud", "version")
        made.well("dpkg", "-P", "gpud")
        assert not of_gpud(made, before)
