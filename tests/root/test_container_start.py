from __future__ import annotations

import os
import time
from pathlib import Path

from docker.errors import APIError

from gpud.core.report import Owner
from gpud.core.sections import PathSettings
from gpud.core.settings import Settings
from gpud.root.container_plan import Job, Task
from gpud.root.container_probe import clear
from gpud.root.containers import Containers, identity
from gpud.root.dockerd_facts import Api, DockerdObservation
from tests.waiting import until


def made(home: Path) -> Settings:
    settings = Settings(home=str(home))
    Path(settings.log_dir).mkdir(parents=True)
    return settings


def test_the_short_life_asks_the_socket_that_dockerd_really_listens_on(tmp_path: Path) -> None:
    told = tmp_path / "told"
    command = ("/bin/sh", "-c", f'echo "$@" > {told}.new; mv {told}.new {told}; exec sleep 100', "")
    containers = Containers(made(tmp_path), command)
    try:
        seen = DockerdObservation(process=None, owner=Owner.GPUD, api=Api.ANSWERS)
        containers.step(seen, "/srv/theirs.sock", time.monotonic() + 1000)
        until(told.exists, "its command line")
        assert '"socket":"/srv/theirs.sock"' in told.read_text()
    finally:
        containers.stop()


def test_two_file_systems_make_two_gpuds_of_one_name() -> None:
    here, there = (
        Settings(paths=PathSettings(run="/run/gpud", log=log)) for log in ("/", "/dev/shm")
    )
    assert os.statvfs("/").f_fsid != os.statvfs("/dev/shm").f_fsid, "two file systems"
    assert identity(here) != identity(there)
    assert identity(here) == identity(here)


class Stubborn:
    """A dockerd with two containers of ours, the first of which it cannot remove."""

    def __init__(self) -> None:
        self.removed: list[str] = []

    def containers(self, **_: object) -> list[dict[str, str]]:
        return [{"Id": "stuck"}, {"Id": "left"}]

    def stop(self, _container: str, **_: object) -> None:
        return

    def remove_container(self, container: str, **_: object) -> None:
        if container == "stuck":
            raise APIError("device or resource busy")
        self.removed.append(container)


def test_one_container_that_cannot_be_removed_keeps_no_other_and_no_look() -> None:
    dockerd = Stubborn()
    job = Job(Task.LOOK, "/run/docker.sock", "x:1", 1.0, "/run/mine", 1)
    clear(dockerd, job)
    assert dockerd.removed == ["left"]
