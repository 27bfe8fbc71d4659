"""From version one's installation, with a month of history and a container, to today's."""

from __future__ import annotations

import contextlib
import lzma
import subprocess
import threading
import time
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from tests.deploy.installing import HOME, ROOT, USER, fresh, install, uninstall
from tests.deploy.test_install import state
from tests.dockerd import PrivateDockerd, private_dockerd
from tests.e2e.program import free_port
from tests.e2e.test_history_v1 import EXPECTED, FILES, collected

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.overlay import Machine

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

VERSION_ONE = "57c5baf"
OUTAGE_S = 15.0
SETTINGS = """
[http]
listen = "127.0.0.1:{port}"
[dockerd]
policy = "auto"
socket = "{dockerd.socket}"
pidfile = "{dockerd.pidfile}"
args = {args}
[cuda]
library = "/nonexistent/libcuda.so.1"
[nvml]
library = "/nonexistent/libnvidia-ml.so.1"
[probes]
disabled = {probes}
[gate]
resume_rest_s = 20.0
[alerts]
timeout_s = 20.0
"""


@dataclass
class Installed:
    """What ``collected`` asks, in a machine."""

    made: Machine
    port: int

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}") as answer:
            return str(answer.read().decode())

    def cli(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.made.run("gpud", *words)


@dataclass
class Watch:
    """The longest time without a supervisor, looked at 50 times a second."""

    made: Machine
    longest_s: float = 0.0
    over: threading.Event = field(default_factory=threading.Event)

    def look(self) -> None:
        seen_s = time.monotonic()
        while not self.over.wait(0.02):
            if self.there():
                seen_s = time.monotonic()
            self.longest_s = max(self.longest_s, time.monotonic() - seen_s)

    def there(self) -> bool:
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.made.root / "run/gpud/root.pid").read_text().split()[0])
            stat = (self.made.root / f"proc/{pid}/stat").read_text()
            return stat.rpartition(")")[2].split()[0] not in "ZX"
        return False


@pytest.fixture(scope="module")
def version_one(shared: Path) -> Path:
    """Its tree and its wheelhouse."""
    place = shared / "version-one"
    (place / "checkout").mkdir(parents=True)
    tree = subprocess.run(
        ["git", "archive", VERSION_ONE], cwd=ROOT, capture_output=True, check=True
    )
    subprocess.run(["tar", "-x", "-C", place / "checkout"], input=tree.stdout, check=True)
    command = place / "checkout/deploy/install"
    subprocess.run([command, "--make-wheelhouse", place / "wheels"], check=True)
    return place


@pytest.fixture
def dockerd() -> Iterator[PrivateDockerd]:
    with private_dockerd() as made:
        yield made


def prepare(made: Machine, dockerd: PrivateDockerd, version_one: Path, port: int) -> None:
    """Put the settings of a person and a month's history there, before version one is installed."""
    made.well("mkdir", "-p", str(dockerd.root), "/etc/gpud", "/var/lib/gpud")
    made.well("mount", "-t", "tmpfs", "tmpfs", str(dockerd.root))
    names = {
        file.stem
        for root in (ROOT, version_one / "checkout")
        for file in (root / "gpud/child/probes").glob("[a-z]*.py")
    }
    text = SETTINGS.format(
        port=port, dockerd=dockerd, args=list(dockerd.args), probes=sorted(names)
    )
    (made.root / "etc/gpud/gpud.toml").write_text(text)
    history = made.root / "var/lib/gpud/gpud.db"
    history.write_bytes(lzma.decompress((FILES / "history.db.xz").read_bytes()))


def test_upgrade_from_version_one_loses_nothing_and_touches_no_container(
    shared: Path, version_one: Path, dockerd: PrivateDockerd
) -> None:
    port = free_port()
    with fresh(shared) as made:
        prepare(made, dockerd, version_one, port)
        wheels = str(version_one / "wheels")
        first = str(version_one / "checkout/deploy/install")
        print(made.well(first, "--user", USER, "--wheelhouse", wheels))
        wait = f"until [ -s {dockerd.pidfile} ]; do sleep 0.05; done"
        made.well("timeout", "300", "sh", "-c", wait)
        docker = (made.root / dockerd.pidfile.lstrip("/")).read_text()
        inside = PrivateDockerd(made.root / dockerd.root.relative_to("/"))
        container = inside.run_container()
        before = state(inside, container)
        pidfile = made.root / "run/gpud/root.pid"
        supervisor = pidfile.read_text()
        watch = Watch(made)
        watcher = threading.Thread(target=watch.look)
        watcher.start()
        try:
            print(made.well(*install(shared)))
        finally:
            watch.over.set()
            watcher.join()
        print(f"without a supervisor for {watch.longest_s:.2f} s")
        assert pidfile.read_text() != supervisor
        assert watch.longest_s < OUTAGE_S
        assert (made.root / dockerd.pidfile.lstrip("/")).read_text() == docker
        assert state(inside, container) == before
        now = collected(Installed(made, port))  # type: ignore[arg-type]
        for part in ("runs", "hours", "events", "firing", "alerts", "verdicts"):
            assert now[part] == EXPECTED[part], part
        assert now["figures"] == pytest.approx(EXPECTED["figures"], rel=0.02)
        assert list((made.root / "var/lib/gpud").glob("gpud.db.schema-*")), "the older file"
        told = made.run("gpud", "config", "check")
        for key in ("gate.resume_rest_s", "alerts.timeout_s"):
            assert f"{key} is no longer a setting" in told.stderr, told
        made.well(*uninstall(shared, "--purge"))
        assert state(inside, container) == before
        assert not (made.root / "var/lib/gpud").exists()
        assert "gpud" not in (made.root / HOME[1:] / ".bashrc").read_text()
