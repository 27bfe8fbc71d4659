"""The way down from root, walked for real."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpud.root.drop import blockers
from tests.waiting import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

TELL = """
import ctypes, json, os, sys
def status(key):
    return next(l.split()[1:] for l in open("/proc/self/status") if l.startswith(key + ":"))
try:
    os.setuid(0)
    back = True
except PermissionError:
    back = False
signal = ctypes.c_int()
ctypes.CDLL(None).prctl(2, ctypes.byref(signal), 0, 0, 0)
print(json.dumps({
    "uid": status("Uid"), "gid": status("Gid"), "groups": status("Groups"), "back": back,
    "no_new_privs": status("NoNewPrivs"), "death_signal": signal.value, "cwd": os.getcwd(),
    "session": os.getsid(0) == os.getpid(), "umask": os.umask(0),
    "capabilities": [status(f"Cap{which}") for which in ("Inh", "Prm", "Eff", "Bnd", "Amb")],
    "below": sorted(os.listdir(sys.argv[1])) if len(sys.argv) > 1 else None,
    "file": open(sys.argv[2]).read() if len(sys.argv) > 2 else None,
}))
"""


def drop(*arguments: str | Path, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, sys.executable, "-I", "-m", "gpud.root.drop", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )


def answer(
    *arguments: str | Path, more: tuple[str | Path, ...] = (), before: tuple[str, ...] = ()
) -> dict[str, Any]:
    tell = ("--", "/usr/bin/python3", "-I", "-S", "-c", TELL, *more)
    done = drop(*arguments, *tell, before=before)
    assert done.returncode == 0, done.stderr
    status: dict[str, Any] = json.loads(done.stdout)
    return status


@pytest.mark.parametrize(
    "before", [(), ("setpriv", "--inh-caps=+net_raw", "--ambient-caps=+net_raw")]
)
def test_nothing_of_root_is_left(before: tuple[str, ...]) -> None:
    account = pwd.getpwnam("nobody")
    status = answer("--user", "nobody", "--parent", str(os.getpid()), before=before)
    assert status["uid"] == [str(account.pw_uid)] * 4
    assert status["gid"] == [str(account.pw_gid)] * 4
    assert status["groups"] == []
    assert status["back"] is False
    assert status["no_new_privs"] == ["1"]
    assert status["capabilities"] == [[f"{0:016x}"]] * 5
    assert status["death_signal"] == 15
    assert status["cwd"] == "/"
    assert status["session"]
    assert status["umask"] == 0o027


def test_verb_that_becomes_the_agents_user_can_gain_no_privilege_either() -> None:
    """Its children are in reach of the agent, which has the same uid."""
    become = "import os, pwd; from gpud.root.drop import become; become(pwd.getpwnam('nobody'), [])"
    run = "os.execv('/bin/grep', ['grep', 'NoNewPrivs', '/proc/self/status'])"
    line = [sys.executable, "-I", "-c", f"{become}; {run}"]
    done = subprocess.run(line, capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.split() == ["NoNewPrivs:", "1"]


def test_it_refuses_to_stay_root() -> None:
    done = drop("--user", "root", "--", "/bin/true")
    assert done.returncode == 126
    assert "root is root" in done.stderr


def test_an_unknown_user_and_a_dead_parent_run_nothing() -> None:
    assert drop("--user", "no-such-user", "--", "/bin/true").returncode == 126
    assert drop("--parent", "1", "--", "/bin/true").returncode == 126


@pytest.fixture
def closed() -> Iterator[Path]:
    """A directory like ``/root``: mode 0700, with a checkout and a secret inside."""
    root = Path(tempfile.mkdtemp(prefix="gpud-closed-"))
    checkout = root / "work" / "checkout"
    checkout.mkdir(parents=True)
    (checkout / "code.py").write_text("hello")
    (root / "secret").write_text("secret")
    root.chmod(0o700)
    (root / "work").chmod(0o700)
    checkout.chmod(0o755)
    try:
        yield root
    finally:
        shutil.rmtree(root)


def test_checkout_below_a_closed_directory_is_reached_written_and_nothing_else(
    closed: Path,
) -> None:
    checkout, nobody = closed / "work/checkout", pwd.getpwnam("nobody").pw_uid
    needed = ("--user", "nobody", "--need", checkout)
    status = answer(*needed, more=(str(closed), str(checkout / "code.py")))
    assert status["below"] == ["work"]
    assert status["file"] == "hello"
    assert status["uid"][0] == str(nobody)
    assert str(closed) not in Path("/proc/self/mounts").read_text()
    assert (closed / "secret").read_text() == "secret"
    os.chown(checkout, nobody, -1)
    done = drop(*needed, "--", "/bin/touch", str(checkout / "written"))
    assert done.returncode == 0, done.stderr
    assert (checkout / "written").stat().st_uid == nobody


def test_needed_place_that_does_not_exist_blocks_no_user(tmp_path: Path) -> None:
    user = pwd.getpwnam("nobody")
    tmp_path.chmod(0o755)
    assert blockers([tmp_path / "absent/etc/gpud"], user).keys() <= set(tmp_path.parents)


def test_way_down_loads_no_library() -> None:
    line = [sys.executable, "-I", "-c", "import sys, gpud.root.drop; print(*sys.modules)"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert not {"msgspec", "typing_extensions", "structlog", "inspect"} & set(done.stdout.split())
