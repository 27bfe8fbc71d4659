"""Builder of gpud_VERSION_ARCHITECTURE.deb, which carries wheels of gpud and of all it needs.

usage: deploy/build-deb [--wheelhouse DIR] [FOLDER]

Wheels for each of ``PYTHONS`` come from the package index, their hashes checked, or from DIR.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.requirements import Requirement

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
GLIBC = ("2_34", "2_28", "2_27", "2_26", "2_24", "2_17")
"""What wheels are built for, the newest first as pip wants them; Debian 12 has 2.36."""
REQUIREMENTS = ("requirements.txt", "requirements-apprise.txt", "requirements-pip.txt")
SCRIPTS = ("config", "postinst", "prerm", "postrm")
CONTROL = """\
Package: gpud
Version: {version}
Architecture: {architecture}
Installed-Size: {kib}
Maintainer: The gpud authors
Depends: python3 (>= 3.11), sudo, debconf (>= 0.5) | debconf-2.0
Recommends: docker.io | docker-ce | moby-engine
Section: admin
Priority: optional
Description: Keeps Docker running and watches what the GPU can do, in WSL2
 Probes measure launch latency, copies, memory and arithmetic on a schedule;
 gpud says when a GPU became slower, since when and why, on a page, on the
 terminal and to Prometheus.
"""


def main() -> None:
    """Run the command line. Errors: ``CalledProcessError`` of pip, hatchling or dpkg-deb."""
    parser = argparse.ArgumentParser(prog="deploy/build-deb", description=__doc__)
    parser.add_argument("--wheelhouse", type=Path, help="wheels, instead of the package index")
    parser.add_argument("folder", type=Path, nargs="?", default=Path.cwd(), metavar="FOLDER")
    given = parser.parse_args()
    if given.wheelhouse is not None and not given.wheelhouse.is_dir():
        parser.error(f"there is no directory {given.wheelhouse}")
    with tempfile.TemporaryDirectory(prefix="gpud-deb-") as name:
        tree = Path(name, "tree")
        wheels = tree / "usr/lib/gpud/wheels"
        wheels.mkdir(parents=True)
        if given.wheelhouse is None:
            for python in PYTHONS:
                download(python, wheels, Path(name))
        for wheel in given.wheelhouse.glob("*.whl") if given.wheelhouse else ():
            if not wheel.name.startswith("gpud-"):
                shutil.copy(wheel, wheels)
        build = (sys.executable, "-I", "-m", "hatchling", "build", "-t", "wheel", "-d", wheels)
        subprocess.run(build, cwd=ROOT, check=True)
        fill(tree, next(wheels.glob("gpud-*.whl")).name.split("-")[1])
        pack = ("dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, given.folder)
        subprocess.run(pack, env={**os.environ, "SOURCE_DATE_EPOCH": "315532800"}, check=True)


def download(python: str, wheels: Path, scratch: Path) -> None:
    """Download what the requirements pin for a version of Python."""
    pinned = scratch / f"{python}.txt"
    pinned.write_text("".join(pins(python)))
    tags = (f"manylinux_{glibc}_{platform.machine()}" for glibc in GLIBC)
    words = ["download", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    words += ["--python-version", python, *(f"--platform={tag}" for tag in tags)]
    subprocess.run(
        [sys.executable, "-I", "-m", "pip", "-q", *words, "-d", wheels, "-r", pinned], check=True
    )


def pins(python: str) -> list[str]:
    """Return the pins that hold for a version of Python, without what says so.

    pip compares such a condition with the Python that runs it.
    """
    machine = {"python_version": python, "python_full_version": f"{python}.0"}
    found = []
    for name in REQUIREMENTS:
        text = (ROOT / "deploy" / name).read_text().replace("\\\n", " ")
        for line in filter(None, (line.partition("#")[0].strip() for line in text.splitlines())):
            pin, *hashes = line.split("--hash=")
            requirement = Requirement(pin.strip())
            if requirement.marker is None or requirement.marker.evaluate(machine):
                plain = f"{requirement.name}{requirement.specifier}"
                found.append(" --hash=".join([plain, *map(str.strip, hashes)]) + "\n")
    return found


def fill(tree: Path, version: str) -> None:
    """Put the installer and what dpkg runs beside the wheels."""
    line = ("dpkg", "--print-architecture")
    architecture = subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()
    (tree / "DEBIAN").mkdir()
    for name in (*SCRIPTS, "templates", "triggers"):
        shutil.copy(HERE / name, tree / "DEBIAN" / name)
    shutil.copy(HERE / "install", tree / "usr/lib/gpud/install")
    licence = tree / "usr/share/doc/gpud/copyright"
    licence.parent.mkdir(parents=True)
    shutil.copy(ROOT / "LICENSE", licence)
    files = filter(Path.is_file, (tree / "usr").rglob("*"))
    kib = sum(-(-path.stat().st_size // 1024) for path in files)  # as dpkg-gencontrol counts
    control = CONTROL.format(version=version, architecture=architecture, kib=kib)
    (tree / "DEBIAN/control").write_text(control)
    for path in tree.rglob("*"):
        path.chmod(0o755 if path.is_dir() or path.name in {*SCRIPTS, "install"} else 0o644)
    tree.chmod(0o755)


if __name__ == "__main__":
    main()
