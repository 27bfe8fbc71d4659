"""Installation and removal as ``deploy/install``, ``deploy/uninstall`` and ``gpud`` start them."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from gpud.install import manifest, options, people, pythons
from gpud.install.console import CLEAN, Console, InstallError, visible
from gpud.install.places import INSTALL_LOG, LOCK, TREE
from gpud.install.source import Checkout, Wheel

if TYPE_CHECKING:
    import argparse
    import pwd
    from collections.abc import Callable, Mapping, Sequence

    from gpud.install.setup import Setup
    from gpud.install.source import Source

ROOTS_PATH = f"/usr/local/sbin:/usr/local/bin:{CLEAN['PATH']}"
GPUD = TREE / "bin/gpud"
SBIN = ":/usr/local/sbin:/usr/sbin:/sbin"  # Debian leaves these out for everybody but root


def main(words: Sequence[str]) -> NoReturn:
    """Run ``install`` or ``uninstall`` of the checkout, or of the tree, that is named first."""
    root, verb, *rest = words
    script = Path(root, "deploy", verb)
    given = options.read(verb, f"deploy/{verb}", rest)
    sys.exit(guarded(lambda: _run(verb, given, Path(root), [str(script), *rest])))


def from_wheels(words: Sequence[str], wheels: Mapping[str, str]) -> NoReturn:
    """Run a verb with its options as root, and wheels by their paths with their hashes."""
    from gpud.install.wheels import copied

    verb, *rest = words
    given = options.read(verb, f"gpud {verb}", rest)
    known: dict[Path, str | None] = {Path(path): digest for path, digest in wheels.items()}

    def run() -> int:
        if verb == "uninstall":
            return uninstall(given, "gpud uninstall")
        with tempfile.TemporaryDirectory(prefix="gpud-wheel-", dir="/run") as folder:
            ours = {path: known.pop(path) for path in list(known) if path.name.startswith("gpud-")}
            (wheel,) = copied(ours, Path(folder, "wheel")).iterdir()
            return install(given, Wheel(wheel), "gpud install", known or None)

    sys.exit(guarded(run))


def _run(verb: str, given: argparse.Namespace, root: Path, line: list[str]) -> int:
    if verb == "uninstall":
        become_root("", *line)
        return uninstall(given, "deploy/uninstall")
    entry = _person(given)
    if not given.dry_run and given.make_wheelhouse is None:
        why = f"Installing gpud below {TREE} needs root; sudo may ask for your password."
        become_root(why, line[0], "--user", entry.pw_name, *line[1:])
    return install(given, Checkout(root), "deploy/install")


def become_root(why: str, *line: str) -> None:
    """Run a line as root in place of this process, unless we are. Errors: ``InstallError``."""
    if os.geteuid() == 0:
        return
    sudo = shutil.which("sudo")
    if sudo is None:
        raise InstallError("this needs root, and there is no sudo", "run it as root")
    if why:
        print(why, flush=True)
    os.execv(sudo, ["sudo", "--", *line])


def guarded(action: Callable[[], int]) -> int:
    """Run something to its exit code; an error has its fix, and a signal leaves no litter."""
    for number in (signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    os.umask(0o022)
    root = os.geteuid() == 0  # which looks for programs where only root can put one
    for name in ("TMPDIR", "TEMP", "TMP") if root else ():
        os.environ.pop(name, None)  # its owner could exchange what root makes there
    os.environ["PATH"] = ROOTS_PATH if root else os.environ.get("PATH", "/usr/bin:/bin") + SBIN
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.reconfigure(errors="backslashreplace")
    try:
        return action()
    except (InstallError, OSError) as error:  # a full disk; or who read what is printed is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        fix = getattr(error, "fix", "let it be written there, with some room, then run this again")
        with suppress(OSError):
            print(f"error: {visible(str(error))}\n  fix: {visible(fix)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _person(given: argparse.Namespace) -> pwd.struct_passwd:
    login = given.user if given.user is not None else people.caller()
    if (entry := people.person(login)) is None:
        raise InstallError(f"there is no user {login}", "--user takes a login name")
    return entry


def with_apprise(given: argparse.Namespace) -> bool:
    """Return whether Apprise is to be there: asked for, or there before."""
    return given.with_extra is not None or "with apprise" in manifest.lines()


def containers(given: argparse.Namespace) -> list[str]:
    """Return the line by which the installed gpud lets containers use the GPU."""
    return [str(GPUD), "install", "--gpu-containers", *(["--dry-run"] if given.dry_run else [])]


def containers_alone(given: argparse.Namespace) -> bool:
    """Return whether only that is asked for: an older gpud is upgraded first."""
    module = "lib/python3*/site-packages/gpud/verbs/gpu_containers.py"
    asked = bool(given.gpu_containers) and given.make_wheelhouse is None
    return asked and any(TREE.glob(module))


def install(
    given: argparse.Namespace,
    source: Source,
    command: str,
    wheels: dict[Path, str | None] | None = None,
) -> int:
    """Install, or say what that would do. Errors: ``InstallError``."""
    from gpud.install.setup import Setup, requirements
    from gpud.install.wheels import listed, make_wheelhouse

    if containers_alone(given):
        os.execv(GPUD, containers(given))
    place = Path("/run") if os.geteuid() == 0 else None  # root's own, where nobody puts a link
    with tempfile.TemporaryDirectory(prefix="gpud-install-", dir=place) as folder:
        scratch = Path(folder)
        if given.make_wheelhouse is not None:
            into = Path(given.make_wheelhouse).resolve()
            names = requirements(apprise=with_apprise(given))
            make_wheelhouse(Console(scratch / "log"), source, names, into, command)
            return 0
        if wheels is None and given.wheelhouse is not None:
            if not Path(given.wheelhouse).is_dir():
                fix = f"{command} --make-wheelhouse {given.wheelhouse}"
                raise InstallError(f"there is no directory {given.wheelhouse}", fix)
            wheels = listed(Path(given.wheelhouse).resolve())
        python, person = pythons.of_root(wheels or ()), _person(given)
        os.chdir("/")  # the directory of the caller may be gone, or be no business of root's
        log = scratch / "log"
        if not given.dry_run:
            TREE.parent.mkdir(exist_ok=True)
            only_one()
            INSTALL_LOG.parent.mkdir(parents=True, exist_ok=True)
            log = INSTALL_LOG
        console, apprise = Console(log), with_apprise(given)
        setup = Setup(given, command, console, source, person, python, scratch, apprise, wheels)
        return _carried_out(setup)


def _carried_out(setup: Setup) -> int:
    from gpud.install import start, unit
    from gpud.install.plan import plan

    say, login = setup.console.say, setup.login
    manifest.refuse_package(setup.command)
    unit.check(setup)
    say(f"gpud for {login}" + ("" if setup.dry else f"; details: {setup.console.log}"))
    if setup.dry and not INSTALL_LOG.exists():
        say(f"  would: {INSTALL_LOG}")
    if not setup.dry and not TREE.exists():
        manifest.own(setup.command)
    setup.carry_out(plan(setup))
    if not setup.dry:
        manifest.own(setup.command)
    setup.carry_out(start.steps(setup))
    if setup.options.gpu_containers and setup.dry:
        say("  would: NVIDIA's repository, if you agree, and its container toolkit")
    elif (
        setup.options.gpu_containers
        and subprocess.run(containers(setup.options), check=False).returncode
    ):
        setup.later.append("containers do not use the GPU yet; the lines above say why")
    if setup.dry:
        say("Nothing was changed.")
        return 0
    start.examine(setup)
    _say_how_it_ended(setup)
    return int(bool(setup.later))


def _say_how_it_ended(setup: Setup) -> None:
    from gpud.install import start

    say = setup.console.say
    say("")
    for text in setup.later:
        say(f"left to do: {text}")
    if not setup.later:
        person = setup.login
        say(f"gpud is installed; every shell that {person} opens finds it running, or starts it.")
        if not setup.options.no_start:
            page = start.page(setup)
            say(f"How it is: gpud status{f', or in a browser {page}' if page else ''}")
    if setup.new_shell:
        say(f"Open a new shell; open ones lack: {', '.join(setup.new_shell)}.")


def uninstall(given: argparse.Namespace, command: str) -> int:
    """Remove what was installed. Errors: ``InstallError``."""
    from gpud.install.undo import Removal

    os.chdir("/")
    only_one()
    manifest.refuse_package(command)
    with tempfile.TemporaryDirectory(prefix="gpud-uninstall-", dir="/run") as folder:
        removal = Removal(given, Console(Path(folder, "log")))
        if removal.run():
            return 0
        for title in removal.left:
            print(f"still there: {visible(title)}", file=sys.stderr)
        removal.console.say("Run this again once the reasons above are gone.")
        return 1


def only_one() -> None:
    """Wait until no other installation or removal runs; nobody else can hold this file."""
    file = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.fchmod(file, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("another installation is running; waiting for it", flush=True)
        fcntl.flock(file, fcntl.LOCK_EX)


if __name__ == "__main__":
    main(sys.argv[1:])
