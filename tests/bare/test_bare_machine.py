"""From a fresh clone on a machine that has python3 and git, and nothing else of what gpud needs.

``deploy/test -m bare``: makes a Debian with debootstrap, so it needs root, a Debian mirror and the
package index, and takes minutes. apt and pip are configured there as they are here.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.debian import add_user, allow_everything, clone_into, make_debian

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.bare, pytest.mark.timeout(3600)]

ROOT = Path(__file__).resolve().parents[2]
USER, UID = "someone", 1234
PORT = 29945

HANDED_OVER = ("PIP_", "SSL_CERT_")
"""Environment variables through which pip finds its index and its certificates here."""

ENTER = """
mount --bind "$1" "$1"  # gpud makes mounts private before it starts the agent: / must be one
cd "$1"
mount --rbind /dev "$1/dev"; mount -t proc proc "$1/proc"
mount -t tmpfs tmpfs "$1/run"; mount -t tmpfs -o mode=1777 tmpfs "$1/tmp"
exec chroot "$1" setpriv --reuid "$2" --regid "$2" --init-groups bash -c "$3"
"""

START = f"""
set -m
deploy/run --no-docker >started 2>&1 & pid=$!
python3 - <<'PYTHON'
import sys, time, urllib.error, urllib.request
until = time.monotonic() + 300
while time.monotonic() < until:
    try:
        with urllib.request.urlopen("http://127.0.0.1:{PORT}/metrics", timeout=30) as answer:
            print(answer.read().decode())
            sys.exit()
    except urllib.error.URLError:
        time.sleep(0.05)
sys.exit("no answer on /metrics")
PYTHON
answered=$?
kill -INT -- -"$pid"
wait "$pid"; ended=$?
((answered == 0)) || cat started >&2
echo "ended: $ended"
exit "$answered"
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """A Debian below ``tree`` with the repository cloned into ``home`` of ``user``."""

    tree: Path
    user: str
    home: str

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run bash in the clone; the mounts and every process are gone when it returns."""
        environ = {k: v for k, v in os.environ.items() if k.startswith(HANDED_OVER)}
        environ |= {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": self.home, "LC_ALL": "C.UTF-8"}
        # unshare itself needs the sbin directories; setpriv in the end starts bash with ours.
        outer = environ | {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        inner = f"export PATH={environ['PATH']}; cd {shlex.quote(self.home)}/gpud; {script}"
        namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        return subprocess.run(
            [*namespaces, "bash", "-ec", ENTER, "sh", self.tree, self.user, inner],
            env=outer,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )


@pytest.fixture(scope="module")
def debian() -> Iterator[Path]:
    """Make the tree once; it lies outside pytest's directories, which keep the last three runs."""
    place = Path(tempfile.mkdtemp(prefix="gpud-bare-"))
    tree = place / "debian"
    try:
        make_debian(tree, "python3", "git", "sudo", "ca-certificates")
        add_user(tree, USER, UID)
        allow_everything(tree, USER)
        yield tree
    finally:
        shutil.rmtree(place)


@pytest.fixture(params=["root", USER])
def machine(request: pytest.FixtureRequest, debian: Path) -> Iterator[Machine]:
    """Give a copy of the Debian in which nothing has been set up yet."""
    user: str = request.param
    tree = debian.with_name(user)
    home = "/root" if user == "root" else f"/home/{user}"
    try:
        subprocess.run(["cp", "-a", debian, tree], check=True)
        clone_into(tree, ROOT, user, home)
        yield Machine(tree, user, home)
    finally:
        shutil.rmtree(tree)


def test_a_second_set_up_does_nothing(machine: Machine) -> None:
    first = machine.run("deploy/run --setup-only --no-docker")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "python3.11-venv" in first.stdout  # named before it is installed
    assert machine.run("git status --porcelain").stdout == ""

    again = machine.run("deploy/run --setup-only --no-docker")
    assert again.stdout == "Everything is in place. deploy/run starts it.\n"

    anywhere = "cd / && ~/gpud/.venv/bin/gpud version && ~/gpud/.venv/bin/python -I -m gpud version"
    assert machine.run(anywhere).returncode == 0


def test_a_clone_on_a_bare_machine_answers_a_scrape_and_stops_on_ctrl_c(machine: Machine) -> None:
    assert machine.run("deploy/run --setup-only --no-docker").returncode == 0
    settings = machine.tree / machine.home[1:] / "gpud/.gpud/etc/gpud/gpud.toml"
    settings.parent.mkdir(parents=True)
    listen = f'[http]\nlisten = "127.0.0.1:{PORT}"\n[dockerd]\npolicy = "off"\n'
    settings.write_text(listen)
    started = machine.run(START)
    assert started.returncode == 0, started.stderr
    assert "gpud_build_info" in started.stdout
    assert "ended: 0" in started.stdout or "ended: 130" in started.stdout, started.stdout[-200:]

    # What root left behind is in nobody's way: not a new set-up's, nor one's who deletes it.
    assert machine.run("deploy/run --setup-only --no-docker && rm -rf .venv gpud").returncode == 0


def test_installation_from_a_clone_is_one_command(machine: Machine) -> None:
    installed = machine.run("deploy/install --no-start && gpud version && getent group docker")
    assert installed.returncode == 0, installed.stdout + installed.stderr
    *_, version, group = installed.stdout.splitlines()
    assert version.startswith("gpud ")
    assert group.endswith(":" if machine.user == "root" else f":{USER}")


def test_half_a_set_up_is_never_taken_for_a_whole_one(machine: Machine) -> None:
    assert machine.run("deploy/run --setup-only --no-docker").returncode == 0
    broken = machine.run("rm .venv/.gpud-setup; rm .venv/bin/gpud; deploy/run --setup-only")
    assert "virtual environment" in broken.stdout
    assert machine.run(".venv/bin/gpud version").returncode == 0


def test_docker_that_cannot_be_installed_is_a_warning(machine: Machine) -> None:
    no_mirror = "echo 'deb [trusted=yes] file:/nonexistent x main' >/etc/apt/sources.list"
    if machine.user != "root":
        pytest.skip("breaking the package lists is root's, and the same for both")
    assert machine.run("deploy/run --setup-only --no-docker").returncode == 0
    script = (
        f"{no_mirror}; rm -rf /etc/apt/sources.list.d /var/lib/apt/lists; deploy/run --setup-only"
    )
    ended = machine.run(script)
    assert ended.returncode == 0, ended.stderr
    assert "warning: no Docker" in ended.stderr
