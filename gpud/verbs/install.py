"""``gpud install`` and ``gpud uninstall``: this gpud made the machine's own, and taken away.

A person sees the plan and fetches the packages; root runs one script once, whose hash is shown.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpud.install import people, pythons, tree, wheels
from gpud.install.__main__ import (
    GPUD,
    become_root,
    containers,
    containers_alone,
    guarded,
    install,
    uninstall,
    with_apprise,
)
from gpud.install.console import Console, InstallError
from gpud.install.places import TREE
from gpud.install.setup import requirements
from gpud.install.source import Wheel
from gpud.output import say
from gpud.verbs import bundle
from gpud.verbs.bundle import repacked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpud.place import Place

TOP: Final = Path(__file__).resolve().parents[2]
COMMAND: Final = "gpud install"


def run(options: argparse.Namespace, place: Place) -> int:
    """Run one of the two; out of a checkout its script does it."""
    if options.verb == "install" and containers_alone(options):
        return guarded(lambda: _gpu_containers(options, place))
    words = place.words[place.words.index(options.verb) + 1 :]
    script = TOP / "deploy" / options.verb
    if options.verb == "uninstall" and not script.exists():
        script = TREE / "deploy/uninstall"
    if script.exists():
        os.execv(script, [str(script), *words])
    return guarded(lambda: _run(options, words))


def _gpu_containers(options: argparse.Namespace, place: Place) -> int:
    """Let containers use the GPU, by the installed gpud and as root."""
    if TREE not in TOP.parents or (os.geteuid() != 0 and not options.dry_run):
        if not options.dry_run:
            become_root("", *containers(options))
        os.execv(GPUD, containers(options))
    from gpud.verbs import gpu_containers

    return gpu_containers.run(options, place)


def _run(options: argparse.Namespace, words: Sequence[str]) -> int:
    if os.geteuid() != 0 and shutil.which("sudo") is None and not options.dry_run:
        raise InstallError("this needs root, and there is no sudo", "run it as root")
    with tempfile.TemporaryDirectory(prefix="gpud-install-") as folder:
        scratch = Path(folder)
        source = Wheel(repacked(scratch))
        if options.verb == "uninstall":
            if os.geteuid() == 0:
                return uninstall(options, "gpud uninstall")
            return _as_root(source, {}, options, words)
        if os.geteuid() == 0 or options.dry_run or options.make_wheelhouse is not None:
            return install(options, source, COMMAND)
        plan = argparse.Namespace(**{**vars(options), "dry_run": True})
        if code := install(plan, source, COMMAND):
            return code
        packages = _packages(options, source, scratch)
        owner = ["--user", options.user or people.caller()]
        return _as_root(source, packages, options, [*owner, *words])


def _packages(options: argparse.Namespace, source: Wheel, scratch: Path) -> dict[Path, str]:
    """Return the wheels of all packages but gpud with their hashes; none where none is needed."""
    python, apprise = pythons.of_root(), with_apprise(options)
    if tree.is_current(tree.fingerprint(python, source, apprise=apprise)):
        return {}
    folder = scratch / "wheels"
    if options.wheelhouse is not None:
        folder = Path(options.wheelhouse).resolve()
    else:
        say("Packages, fetched as you:")
        wheels.fill(Console(scratch / "log"), python, source, requirements(apprise=apprise), folder)
    others = [path for path in wheels.listed(folder) if not path.name.startswith("gpud-")]
    return {path: wheels.digest(path) for path in others}


def _as_root(
    source: Wheel,
    packages: Mapping[Path, str],
    options: argparse.Namespace,
    words: Sequence[str],
) -> int:
    """Let root run the installer of these packages, with one password at most."""
    python, packages = pythons.of_root(), {source.path: wheels.digest(source.path), **packages}
    text = bundle.script(source.installer(), packages)
    path = source.path.with_name("gpud-install.py")
    path.write_bytes(text)
    digest = hashlib.sha256(text).hexdigest()
    say(f"Root runs {path}, SHA-256 {digest}; sudo may ask for your password.")
    line = bundle.line(python, path, text, [options.verb, *words])
    return subprocess.run(["sudo", "--", *line], check=False).returncode
