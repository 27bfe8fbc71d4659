"""Set-up of a checkout: its .venv from hashed packages, and Docker where there is none.

``deploy/run``, ``deploy/test`` and ``deploy/build-deb`` call it with any Python from 3.11, and
``gpud.install`` does the work.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import pwd
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gpud.install import packages, pythons, wheels  # noqa: E402
from gpud.install.__main__ import guarded  # noqa: E402
from gpud.install.console import Console, InstallError, output  # noqa: E402
from gpud.install.setup import Execution, PlanLine, Step  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpud.install.setup import Plan

VENV: Final = ROOT / ".venv"
HOME: Final = ROOT / ".gpud"
LOG: Final = HOME / "setup.log"
FAILED: Final = HOME / "docker-failed"
"""Is there where Docker could not be installed, which takes minutes to find out again."""
OPTIONS: Final = {
    "--dev": "also what the tests need",
    "--docker": "install Docker where there is none",
    "--again": "also where that failed before",
    "--no-root": "without sudo",
}
INDEX: Final = (
    "the lines above say why; for want of a network check that it reaches the package index"
)


@dataclass
class SetUp(Execution):
    """The set-up of this checkout; what lies in it belongs to the checkout's owner."""

    def run(self, *argv: str | Path) -> None:
        """Run a program as the owner. Errors: ``CalledProcessError``."""
        self.console.run(*as_owner(*argv), env=os.environ)

    def pip(self, *words: str | Path) -> None:
        """Run the environment's pip. Errors: ``CalledProcessError``."""
        self.run(VENV / "bin/python", "-I", "-m", "pip", *wheels.QUIET, *words)

    def plan(self) -> Plan:
        """Plan what is missing. Errors: ``InstallError``."""
        if not is_fresh("requirements.txt", "setup"):
            yield from self.environment()
        # Every time: quick when nothing changed, and root then finds nothing to write here.
        with suppress(subprocess.CalledProcessError):
            self.run(VENV / "bin/python", "-I", "-m", "compileall", "-q", ROOT / "gpud")
        if self.options.dev and not is_fresh("requirements-dev.txt", "setup-dev"):
            yield self.requirements("requirements-dev.txt")
            self.stamp("requirements-dev.txt", "setup-dev")
        if self.options.docker and not packages.docker_is_here():
            yield from self.docker()

    def environment(self) -> Plan:
        """Plan the environment, anew."""
        python = Path(sys.executable)
        version = pythons.version(python)
        yield PlanLine(
            f"Setting up {VENV} with {python} ({version}); nothing outside the checkout changes\n"
            f"unless a line says so. Details: {LOG}"
        )

        def no_venv() -> None:
            fix = f"install python{version}-venv"
            raise InstallError(f"{python} cannot make a virtual environment", fix)

        if not pythons.has_ensurepip(python):
            why = "python3 comes without the modules that make a virtual environment"
            yield from self.apt(why, f"python{version}-venv", no_venv)
        yield Step("remove what was there", lambda: self.run("rm", "-rf", "--", VENV))
        yield Step("virtual environment", lambda: self.run(python, "-I", "-m", "venv", VENV))
        yield self.requirements("requirements.txt")
        options = ("--no-deps", "--no-build-isolation", "--no-index", "-e", ROOT)
        yield Step("gpud itself", lambda: self.pip("install", *options))
        self.stamp("requirements.txt", "setup")

    def requirements(self, name: str) -> Step:
        """Return the step that installs the packages of a file."""
        file = ROOT / "deploy" / name
        options = ("--no-compile", "--require-hashes", "--only-binary", ":all:", "-r", file)

        def install() -> None:
            self.pip("install", *options)
            with suppress(subprocess.CalledProcessError):  # some carry files that do not compile
                compiler = (VENV / "bin/python", "-I", "-m", "compileall", "-q", "-j", "0")
                self.run(*compiler, VENV / "lib")  # on all processors, which pip does not use

        return Step(f"Python packages of deploy/{name}", install, INDEX)

    def stamp(self, requirements: str, name: str) -> None:
        """Note, last of all, what the environment was made from."""
        text = made_from(requirements)
        line = 'printf "%s\\n" "$1" >"$2.new" && mv -f -- "$2.new" "$2"'
        self.run("sh", "-c", line, "sh", text, VENV / f".gpud-{name}")

    def docker(self) -> Plan:
        """Plan for Docker: a machine without is worth watching, so no failure is the end."""
        if self.options.no_root:
            yield PlanLine(
                "There is no Docker here, and --no-root installs none; gpud runs without."
            )
        elif FAILED.exists() and not self.options.again:
            yield PlanLine(
                "docker.io could not be installed earlier; deploy/run --setup-only tries again."
            )
        else:
            self.run("rm", "-f", "--", FAILED)
            why = "dockerd, which gpud keeps running (--no-docker leaves it out)"
            yield from self.apt(why, "docker.io", self.no_docker)

    def apt(self, why: str, package: str, failed: Callable[[], None]) -> Plan:
        """Plan a Debian package, where we are root or may become it."""
        if os.geteuid() != 0:
            if self.options.no_root or shutil.which("sudo") is None:
                yours = f"sudo apt-get install {package} ({why})"
                self.console.warn(f"not root, so this is yours to do: {yours}")
                failed()
                return
            print(f"sudo may ask for your password: {package}, {why}", flush=True)
            if subprocess.run(["sudo", "-v"], check=False).returncode:
                failed()
                return
        yield from packages.install(self, why, [package], failed)

    def no_docker(self) -> None:
        """Say that Docker could not be installed."""
        self.run("touch", "--", FAILED)
        again = "deploy/run --setup-only tries again"
        self.console.warn(f"no Docker: gpud runs without. {LOG} says why; {again}")


def as_owner(*argv: str | Path) -> list[str | Path]:
    """Return a line that root runs as the owner: it leaves no file of its own in a checkout."""
    facts = ROOT.stat()
    if os.geteuid() != 0 or facts.st_uid == 0:
        return list(argv)
    home = f"HOME={pwd.getpwuid(facts.st_uid).pw_dir}"
    who = (f"--reuid={facts.st_uid}", f"--regid={facts.st_gid}", "--clear-groups")
    return ["setpriv", *who, "env", home, *argv]


def made_from(requirements: str) -> str:
    """Return a hash of all that the environment depends on."""
    python = output(VENV / "bin/python", "-I", "-c", "import sys; print(sys.version)")
    project = (ROOT / "pyproject.toml").read_text().partition("\n[tool.")[0]
    packages_ = (ROOT / "deploy" / requirements).read_text()
    return hashlib.sha256(f"{ROOT}\n{python}\n{project}\n{packages_}".encode()).hexdigest()


def is_fresh(requirements: str, name: str) -> bool:
    """Return whether the environment is made from these files."""
    with suppress(OSError):
        return (VENV / f".gpud-{name}").read_text().strip() == made_from(requirements)
    return False


def set_up(options: argparse.Namespace) -> int:
    """Set up what is missing; one at a time, the second finds the work done."""
    try:
        for line in (("mkdir", "-p", "--", HOME), ("touch", "--", LOG, HOME / "setup.lock")):
            subprocess.run(as_owner(*line), check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        fix = "run as the owner of the checkout, or clone one of your own"
        raise InstallError(f"cannot write to {HOME}", fix) from error
    with (HOME / "setup.lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another set-up of this checkout is running; waiting for it", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        made = SetUp(options, "deploy/run", Console(LOG))
        made.carry_out(made.plan())
    return 0


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="deploy/checkout.py", allow_abbrev=False)
    for name, text in OPTIONS.items():
        parser.add_argument(name, action="store_true", help=text)
    parser.set_defaults(dry_run=False)
    options = parser.parse_args()
    sys.exit(guarded(lambda: set_up(options)))


if __name__ == "__main__":
    main()
