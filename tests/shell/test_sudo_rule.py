"""What the sudo rule gives, and every known way to get more out of it than that."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.shell.world import ROOT_PATH, STRANGER, USER, World
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

GPUD = "/opt/gpud/bin/gpud"
ALLOWED = ("up", "down", "restart")
EVIL = f"/home/{USER}/evil"
MARKER = "/run/marker"
"""Only root can write there: where it appears, a user's code has run as root."""
PAYLOAD = f"""
import os
if os.geteuid() == 0:
    open("{MARKER}", "w").close()
"""
LIBRARY = f"""
#include <fcntl.h>
#include <unistd.h>
__attribute__((constructor)) static void run(void) {{
  if (geteuid() == 0) close(open("{MARKER}", O_CREAT | O_WRONLY, 0644));
}}
"""
VARIABLES = {
    "PYTHONPATH": EVIL,
    "PYTHONHOME": EVIL,
    "PYTHONUSERBASE": EVIL,
    "PYTHONSTARTUP": f"{EVIL}/gpud/__init__.py",
    "PYTHONINSPECT": "1",
    "PYTHONBREAKPOINT": "gpud.evil",
    "PYTHONPLATLIBDIR": EVIL,
    "PYTHONEXECUTABLE": f"{EVIL}/bin/python",
    "PYTHONPYCACHEPREFIX": EVIL,
    "PYTHONWARNINGS": "error:::gpud.evil",
    "LD_PRELOAD": f"{EVIL}/evil.so",
    "LD_LIBRARY_PATH": EVIL,
    "LD_AUDIT": f"{EVIL}/evil.so",
    "BASH_ENV": f"{EVIL}/run",
    "ENV": f"{EVIL}/run",
    "SUDO_ASKPASS": f"{EVIL}/run",
    "VIRTUAL_ENV": EVIL,
    "GPUD_HOME": EVIL,
    "GPUD_DOCKERD__BINARY": f"{EVIL}/dockerd",
    "GPUD_DOCKERD__POLICY": "manage",
    "PATH": f"{EVIL}:{ROOT_PATH}",
    "HOME": EVIL,
}
WIDE_SETTINGS = {
    "kept": f'Defaults env_keep += "{" ".join(VARIABLES)}"',
    "not reset": "Defaults !env_reset",
    "may be set": "Defaults setenv",
    "own PATH": "Defaults !secure_path, env_keep += PATH",
}
REFUSED = {
    "no argument": [GPUD],
    "another verb": [GPUD, "run"],
    "an option after": [GPUD, "up", "--home", EVIL],
    "an option before": [GPUD, "--home", EVIL, "up"],
    "settings of one's own": [GPUD, "--config", f"{EVIL}/gpud.toml", "up"],
    "an allowed word too many": [GPUD, "up", "down"],
    "an empty word too many": [GPUD, "up", ""],
    "two words in one": [GPUD, "up down"],
    "a space": [GPUD, "up "],
    "another case": [GPUD, "UP"],
    "a wildcard for the argument": [GPUD, "*"],
    "a wildcard in the path": ["/opt/gpud/bin/gpu?", "up"],
    "another program beside it": ["/opt/gpud/bin/python", "up"],
    "the interpreter": ["/opt/gpud/bin/python", "-I", "-m", "gpud", "up"],
    "the interpreter through a link": [f"{EVIL}/bin/python", "-I", "-m", "gpud", "up"],
    "a program of the same name": [f"{EVIL}/run/../gpud.copy/gpud", "up"],
    "another user": ["-u", STRANGER, GPUD, "up"],
    "another group": ["-g", "root", GPUD, "up"],
    "by number": ["-u", "#-1", GPUD, "up"],
    "a shell": ["-s", GPUD, "up"],
    "a login shell": ["-i", GPUD, "up"],
    "an editor": ["-e", GPUD],
    "the whole environment": ["-E", GPUD, "up"],
    "one variable kept": ["--preserve-env=PYTHONPATH", GPUD, "up"],
    "one variable set": [f"PYTHONPATH={EVIL}", GPUD, "up"],
    "another directory": ["-D", "/tmp", GPUD, "up"],
    "another root directory": ["-R", EVIL, GPUD, "up"],
    "descriptors kept open": ["-C", "100", GPUD, "up"],
    "on another host": ["-h", "elsewhere", GPUD, "up"],
}
HARMLESS = {
    "as it is meant": [GPUD, "down"],
    "through a link of one's own": [f"{EVIL}/bin/gpud", "down"],
    "by a path with dots": ["/opt/gpud/../gpud/bin/gpud", "down"],
    "in the directory one is in": ["-D", EVIL, GPUD, "down"],
    "in the background": ["-b", GPUD, "down"],
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("evil") / "evil.so"
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(made)]
    subprocess.run(command, input=LIBRARY, text=True, check=True)
    return made


@pytest.fixture
def evil(machine: World, library: Path) -> World:
    """Give a machine whose user has prepared everything that could be picked up by root."""
    for module in ("gpud/__init__", "sitecustomize", "usercustomize", "structlog"):
        machine.own(f"{EVIL}/{module}.py", PAYLOAD)
    [packages] = machine.path("/opt/gpud/lib").glob("python*")
    for module in ("__init__", "__main__", "cli"):
        machine.own(f"{EVIL}/lib/{packages.name}/site-packages/gpud/{module}.py", PAYLOAD)
    machine.own(f"{EVIL}/pyvenv.cfg", machine.path("/opt/gpud/pyvenv.cfg").read_text())
    for program in ("run", "dockerd", "gpud-test-dockerd", "sh", "python", "gpud.copy/gpud"):
        machine.own(f"{EVIL}/{program}", f"#!/bin/sh\ntouch {MARKER} 2>/dev/null\n", 0o755)
    shutil.copy(library, machine.path(f"{EVIL}/evil.so"))
    prepared = machine.run(
        "sh",
        "-ec",
        f"cd {EVIL}; mkdir -p bin;ln -s /opt/gpud/bin/python bin/python; ln -s {GPUD} bin/gpud",
    )
    assert prepared.returncode == 0, prepared.stderr
    return machine


def marked(world: World) -> bool:
    return world.path(MARKER).exists()


def sudo(world: World, *words: str) -> subprocess.CompletedProcess[str]:
    """Run sudo from the user's own directory, with a whole hostile environment."""
    hostile = [f"{name}={value}" for name, value in VARIABLES.items()]
    return world.run("env", "-C", EVIL, *hostile, "sudo", "-n", *words)


def test_sudo_lists_three_commands_for_the_user_and_none_for_another(machine: World) -> None:
    listed = machine.run("sudo", "-n", "-l").stdout
    rules = [line for line in listed.splitlines() if "NOPASSWD" in line]
    assert rules == [f"    (root) NOPASSWD: {', '.join(f'{GPUD} {verb}' for verb in ALLOWED)}"]
    assert machine.run("sudo", "-n", "-l", user=STRANGER).returncode != 0


def test_the_three_commands_run_the_rule_by_themselves_and_a_stranger_is_denied(
    machine: World,
) -> None:
    machine.root(f"mkdir /run/bin; ln -s {GPUD} /run/bin/gpud")  # as /usr/local/bin/gpud is
    for verb, message in (
        ("up", "gpud runs\n"),
        ("restart", "gpud has restarted"),
        ("down", "gpud has stopped"),
    ):
        done = machine.run("/run/bin/gpud", verb)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(message)
        refused = machine.run("/run/bin/gpud", verb, user=STRANGER)
        assert (refused.returncode, refused.stdout) == (4, "")
        rule = "to need no password, get the rule: deploy/install --user $USER"
        assert refused.stderr.endswith(f"  fix: sudo gpud {verb}; {rule}\n")
    denied = machine.run("/run/bin/gpud", "down", "--docker")
    assert (denied.returncode, denied.stderr.endswith("  fix: sudo gpud down --docker\n")) == (
        4,
        True,
    )


@pytest.mark.parametrize(
    "line",
    [
        f"PYTHONPATH={EVIL} /opt/gpud/bin/python -c 'import gpud'",
        f"LD_PRELOAD={EVIL}/evil.so /bin/true",
        f"PATH={EVIL}:$PATH; gpud-test-dockerd",
        f"bash -c 'exec -a {EVIL}/bin/python /opt/gpud/bin/python -I -m gpud up'",
    ],
)
def test_the_traps_would_spring_if_root_stepped_on_them(evil: World, line: str) -> None:
    evil.run("sh", "-c", line, user=None)
    assert marked(evil)


@pytest.mark.parametrize("how", REFUSED)
def test_sudo_refuses(evil: World, how: str) -> None:
    refused = sudo(evil, *REFUSED[how])
    assert refused.returncode != 0
    assert "sudo" in refused.stderr
    assert not marked(evil)
    assert not evil.processes()


@pytest.mark.parametrize("how", HARMLESS)
def test_what_sudo_allows_runs_nothing_of_the_users(evil: World, how: str) -> None:
    allowed = sudo(evil, *HARMLESS[how])
    assert allowed.returncode == 0, allowed.stderr
    assert not marked(evil)


@pytest.mark.parametrize("wide", ["", *WIDE_SETTINGS])
def test_no_variable_reaches_root_whatever_the_main_file_lets_through(
    evil: World, wide: str
) -> None:
    evil.write("/etc/sudoers.d/aa-wide", f"{WIDE_SETTINGS.get(wide, '')}\n", 0o440)
    settings = evil.path("/etc/gpud/gpud.toml")
    before = settings.read_text()
    try:
        settings.write_text(before.replace('"off"', '"manage"\nbinary = "gpud-test-dockerd"'))
        begun = sudo(evil, GPUD, "up")
        assert begun.returncode == 0, begun.stderr
        looked = until(lambda: report(evil).get("dockerd"), "a look for dockerd")
        assert looked["reason"] == "binary_missing"
        pid = int(evil.path("/run/gpud/root.pid").read_text().split()[0])
        environment = evil.path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
        assert not [line for line in environment if EVIL in line]
        names = {line.partition("=")[0] for line in environment if line}
        assert names <= SETS
    finally:
        settings.write_text(before)
        evil.root("rm /etc/sudoers.d/aa-wide")
        assert evil.run("sudo", "-n", GPUD, "down").returncode == 0
    assert not marked(evil)


SETS = {"PATH", "HOME", "LOGNAME", "USER", "SHELL", "MAIL", "TERM"} | {
    f"SUDO_{what}" for what in ("COMMAND", "USER", "UID", "GID", "HOME")
}
"""What sudo sets by itself."""


def report(world: World) -> dict[str, Any]:
    try:
        said: dict[str, Any] = json.loads(world.path("/run/gpud/root.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return said


WALK = """
import os, shutil, stat, sys
seen, loose = set(), set()

def look(path):
    if path in seen:
        return
    seen.add(path)
    if path != "/":
        look(os.path.dirname(path))
    try:
        facts = os.lstat(path)
    except FileNotFoundError:
        return
    if stat.S_ISLNK(facts.st_mode):
        look(os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path))))
        if facts.st_uid:
            loose.add(path)
    elif facts.st_uid or facts.st_mode & 0o022:
        loose.add(path)

for path in ("/opt/gpud/bin/gpud", sys.executable, os.path.realpath(sys.executable), *sys.path):
    look(path)
for directory in "/usr/sbin:/usr/bin:/sbin:/bin".split(":"):
    look(directory)
for name in ("sh", "sudo", "dockerd"):
    look(shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin") or "/")
for module in list(sys.modules.values()):
    if getattr(module, "__file__", None):
        look(module.__file__)
for top, directories, files in os.walk("/opt/gpud"):
    for name in (*directories, *files):
        look(os.path.join(top, name))
print(*sorted(loose), sep="\\n")
"""


def loose(world: World) -> list[str]:
    """Every file and directory on the way of what root runs that somebody else may change."""
    code = f"import gpud.cli, gpud.root.control\n{WALK}"
    walked = world.run("/opt/gpud/bin/python", "-I", "-c", code, user=None)
    assert walked.returncode == 0, walked.stderr
    return walked.stdout.split()


def test_nobody_but_root_can_change_anything_that_root_runs(machine: World) -> None:
    assert loose(machine) == []


@pytest.mark.parametrize("place", ["/opt", "/opt/gpud/bin", "/opt/gpud/bin/gpud", "/var"])
def test_a_place_that_others_may_write_to_is_found(machine: World, place: str) -> None:
    on_the_way = place != "/var"
    machine.root(f"chmod o+w {place}")
    try:
        assert loose(machine) == ([place] if on_the_way else [])
    finally:
        machine.root(f"chmod o-w {place}")
