"""The tree /opt/gpud: built beside the old one from hashed packages, exchanged in one moment."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from gpud.install import manifest, packages, pythons, wheels
from gpud.install.console import CLEAN, InstallError, output, visible
from gpud.install.places import BUILD, TREE, fresh
from gpud.install.setup import Done, PlanLine, Step, removed, requirements

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.install.setup import Plan, Setup
    from gpud.install.source import Source

NEW: Final = fresh(TREE)
MARK: Final = TREE / ".fingerprint"
SUMS: Final = ".sums"
AGAIN: Final = "correct them as the lines above say, then run this again"
REFUSED: Final = 2
"""Exit code of ``gpud config check`` for settings that gpud does not start with."""
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def gpud_of(tree: Path, *words: str) -> list[str | Path]:
    """Return the command line of a tree's gpud for this machine."""
    return [tree / "bin/python", "-I", "-m", "gpud", "--home", "/", *words]


def steps(setup: Setup) -> Plan:
    """Plan for the tree: nothing where it is whole and made from the same."""
    mark = fingerprint(setup.python, setup.source, apprise=setup.apprise)
    if is_current(mark):
        if not setup.dry:
            removed(NEW, BUILD)  # of an interrupted run
            _note_apprise(setup)
        yield Done(str(TREE))
        return
    setup.upgrade = TREE.is_dir()
    if setup.upgrade and not (TREE / "bin/python").exists():
        gone = (TREE / "bin/python").resolve()
        yield PlanLine(f"  {TREE}: the Python it was built with ({gone}) is gone")
    if not setup.dry and os.path.lexists(TREE) and f"tree {TREE}" not in manifest.lines():
        raise InstallError(
            f"{TREE} is there and was not made by this",
            "move it out of the way, then run this again",
        )
    yield from _ensurepip(setup)
    if setup.dry:
        build = f"build {TREE} with {setup.python} from deploy/requirements.txt (hashes checked)"
        yield PlanLine(f"  would: {build}")
        if setup.apprise:
            yield PlanLine("  would: Apprise from deploy/requirements-apprise.txt (hashes checked)")
        return
    yield from _build(setup, mark)
    _note_apprise(setup)
    removed(BUILD)  # what was there before stays until the new one runs


def _build(setup: Setup, mark: str) -> Plan:
    why = "the lines above say why; for want of a network use --wheelhouse"
    log = f"{setup.console.log} says why"
    venv = (setup.python, "-I", "-m", "venv", "--without-pip", "--", NEW)
    yield Step("tools to build with", lambda: _make_tools(setup), log, notes=(f"tree {TREE}",))
    yield Step(f"{TREE}: an empty environment", lambda: setup.console.run(*venv), log)
    yield Step(
        f"{TREE}: packages of deploy/requirements.txt", lambda: _install_packages(setup), why
    )
    yield Step(f"{TREE}: gpud itself", lambda: _install_gpud(setup), log)
    yield Step(f"{TREE}: bytecode, scripts, owner and modes", lambda: _finish(setup, mark), log)
    if setup.upgrade:
        check()
    yield Step(f"{TREE}: put in place", lambda: _swap(setup), log)


def fingerprint(python: Path, source: Source, *, apprise: bool) -> str:
    """Return a hash of everything that the tree is made from."""
    found = hashlib.sha256()
    version = output(python, "-I", "-c", "import sys; print(sys.version)") or ""
    facts = ("python", version.encode()), ("apprise", b"%d" % apprise)
    for name, text in (*facts, *source.parts()):
        found.update(b"%s %d\n%s" % (name.encode(), len(text), text))
    return found.hexdigest()


def is_current(mark: str) -> bool:
    """Return whether the tree is made from the same, whole, and runs."""
    try:
        if MARK.read_text().strip() != mark:
            return False
        line = ["sha256sum", "--quiet", "--check", SUMS]
        whole = subprocess.run(line, cwd=TREE, capture_output=True, check=False).returncode == 0
    except OSError:
        return False
    return whole and output(TREE / "bin/gpud", "version", env=CLEAN) is not None


def _note_apprise(setup: Setup) -> None:
    """Note what is in the tree, for the upgrades to come."""
    if setup.apprise:
        manifest.note("with apprise")


def _ensurepip(setup: Setup) -> Plan:
    """Plan for the package that makes a virtual environment."""
    python = setup.python
    if pythons.has_ensurepip(python) or wheels.pinned_pip(setup.wheels or (), setup.source):
        return
    if setup.wheels is not None:
        raise InstallError(
            "Python has no ensurepip, and there is no known pip in the wheelhouse",
            f"make it anew with {setup.command} --make-wheelhouse",
        )
    package = f"python{pythons.version(python)}-venv"
    why = f"{python} comes without what makes a virtual environment"
    yield from packages.install(setup, why, [package], lambda: None)
    if not setup.dry and not pythons.has_ensurepip(python):
        fix = f"install it ({package} has it on Debian and Ubuntu), or use --wheelhouse"
        raise InstallError(f"{python} has no module ensurepip", fix)


def _make_tools(setup: Setup) -> None:
    removed(NEW, BUILD)
    BUILD.mkdir(0o700)
    if setup.wheels is not None:
        folder = wheels.copied(setup.wheels, BUILD / "wheels")
        setup.wheels = wheels.listed(folder)
    pip = wheels.pinned_pip(setup.wheels or (), setup.source)
    setup.pip = wheels.make_pip(setup.console, setup.python, BUILD / "tools", pip)


def _pip(setup: Setup, *words: str | Path) -> None:
    own = CLEAN | {"HOME": str(BUILD), "PIP_CACHE_DIR": "/root/.cache/pip"}  # no pip.conf of root's
    into = ("--python", NEW / "bin/python", "install", "--no-compile", "--no-warn-script-location")
    setup.console.run(*setup.pip, *wheels.QUIET, *into, *words, env=own)


def _install_packages(setup: Setup) -> None:
    options: list[str | Path] = []
    if setup.wheels is not None:
        options += ["--no-index", "--find-links", BUILD / "wheels"]
    for name in requirements(apprise=setup.apprise):
        copy = BUILD / name
        copy.write_bytes(setup.source.read(name))
        options += ["-r", copy]
    _pip(setup, "--require-hashes", "--only-binary", ":all:", *options)


def _install_gpud(setup: Setup) -> None:
    what = setup.source.prepared(BUILD)
    _pip(setup, "--no-index", "--no-deps", "--no-build-isolation", what)
    for path in NEW.glob("lib/python3*/site-packages/gpud-*.dist-info/direct_url.json"):
        path.unlink()


def _finish(setup: Setup, mark: str) -> None:
    """Compile, put the scripts there, and leave all to root; bytecode names the final place."""
    run = setup.console.run
    compiles = ("-I", "-m", "compileall", "-q", "-j", "0", "-s", NEW, "-p", TREE)
    run(NEW / "bin/python", *compiles, NEW / "lib")
    _write_scripts(setup)
    (NEW / MARK.name).write_text(f"{mark}\n")
    run("chown", "-hR", "--", "root:root", NEW)
    run("chmod", "-R", "--", "u=rwX,go=rX", NEW)
    lines = [
        f"{wheels.digest(path)}  ./{path.relative_to(NEW)}\n"
        for path in sorted(NEW.rglob("*"))
        if path.is_file() and not path.is_symlink()
    ]
    (NEW / SUMS).write_text("".join(lines))
    (NEW / SUMS).chmod(0o644)
    run("sync", "-f", "--", NEW)


def _write_scripts(setup: Setup) -> None:
    read = setup.source.read
    for path in (NEW / "bin").iterdir():
        if not path.name.startswith("python"):
            path.unlink()
    scripts = {"bin/gpud": "gpud-command", "bin/gpud-start": "gpud-start"}
    scripts["deploy/uninstall"] = "uninstall"  # for when the checkout is gone
    again = f"Run {setup.command} again".encode()  # what mends it, for whom it has installed
    files = {
        name: (read(source).replace(b"Run deploy/install again", again), 0o755)
        for name, source in scripts.items()
    }
    for snippet in ("bashrc.snippet", "zshrc.snippet", "config.fish.snippet"):
        text = read(snippet).replace(b"Run deploy/install again", again)
        files[f"share/{snippet}"] = (text, 0o644)
    files |= {name: (text, 0o644) for name, text in setup.source.installer().items()}
    for name, (text, mode) in files.items():
        (NEW / name).parent.mkdir(parents=True, exist_ok=True)
        (NEW / name).write_bytes(text)
        (NEW / name).chmod(mode)
    config = NEW / "pyvenv.cfg"
    kept = [
        line.replace(str(NEW), str(TREE))
        for line in config.read_text().splitlines(keepends=True)
        if not line.startswith("command = ")
    ]
    config.write_text("".join(kept))


def check() -> None:
    """Try the new gpud and the settings while the old one runs. Errors: ``InstallError``."""
    fault, fix = "run", "the lines above say why"
    ran = _tried("completion", "bash")
    if ran.returncode == 0:
        ran = _tried("config", "check")
        if ran.returncode == REFUSED:
            fault, fix = "start with these settings", AGAIN
        elif ran.returncode in {0, 1} and "Traceback (most recent" not in ran.stderr:
            return
    print(visible(ran.stdout + ran.stderr), end="", file=sys.stderr, flush=True)
    raise InstallError(
        f"this version of gpud does not {fault}; the installed one was left as it is", fix
    )


def _tried(*words: str) -> subprocess.CompletedProcess[str]:
    line = gpud_of(NEW, *words)
    return subprocess.run(line, capture_output=True, env=CLEAN, cwd="/", text=True, check=False)


def _swap(setup: Setup) -> None:
    if os.path.lexists(TREE):
        setup.previous = exchanged()
        if setup.previous:
            return
        removed(TREE)  # an overlay moves no directory of its lower layer; this time there is a gap
    NEW.rename(TREE)


def exchanged() -> bool:
    """Let new and old change places in one moment; False where the file system cannot."""
    paths = _AT_FDCWD, os.fsencode(NEW), _AT_FDCWD, os.fsencode(TREE)
    return bool(ctypes.CDLL(None).renameat2(*paths, _RENAME_EXCHANGE) == 0)
