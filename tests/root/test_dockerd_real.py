"""Debian's dockerd, kept by a real supervisor."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpud.root import process
from tests import authz
from tests.waiting import until

if TYPE_CHECKING:
    from tests.dockerd import PrivateDockerd
    from tests.root.conftest import Supervised


def running(report: dict[str, Any]) -> bool:
    """Well, and it has told its version and how it treats containers."""
    status = report["dockerd"]
    return bool(status["state"] == "running" and status["live_restore"] is not None)


def dockerd_starts(supervised: Supervised) -> int:
    log = (supervised.home / "var/log/gpud/dockerd.log").read_text()
    return log.count('msg="Starting up"')


def test_dockerd_killed_again_and_again_is_back_without_a_back_off_and_its_container_unharmed(
    supervised: Supervised, dockerd: PrivateDockerd
) -> None:
    supervised.settings = {"dockerd": dockerd.settings()}
    supervised.start()
    container = inside = None
    for number in range(6):
        # Killed before root has seen it answer, one has failed to start.
        status = supervised.when(
            lambda r, kills=number: running(r) and sum(r["dockerd"]["restarts"].values()) == kills,  # type: ignore[misc]
            f"a running dockerd after {number} kills",  # a back-off would be half a minute at last
        )["dockerd"]
        assert status["owner"] == "gpud"
        assert status["live_restore"] is True
        assert status["restarts"] == ({"killed": number} if number else {})
        assert dockerd.answers()
        container = container or dockerd.run_container()
        inside = inside or dockerd.pid_of(container)
        assert dockerd.pid_of(container) == inside
        if number < 5:
            os.kill(status["process"]["pid"], signal.SIGKILL)
    log = (supervised.home / "var/log/gpud/root.log").read_text()
    starts = [line for line in log.splitlines() if "dockerd_action" in line and "start" in line]
    assert len(starts) == 6
    assert all("failures=0" in line or '"failures": 0' in line for line in starts), starts


def test_next_supervisor_adopts_the_dockerd_of_a_stopped_supervisor(
    supervised: Supervised, dockerd: PrivateDockerd
) -> None:
    supervised.settings = {"dockerd": dockerd.settings()}
    supervised.start()
    first = supervised.when(running, "a running dockerd")["dockerd"]
    assert supervised.stop() == 0
    assert dockerd.answers()
    supervised.start()
    second = supervised.when(running, "the adopted dockerd")["dockerd"]
    assert second["process"] == first["process"]
    assert second["owner"] == "gpud"
    assert second["restarts"] == {}
    assert dockerd.dockerds() == [first["process"]["pid"]]
    os.kill(first["process"]["pid"], signal.SIGKILL)
    again = supervised.when(
        lambda r: running(r) and r["dockerd"]["process"] != first["process"], "its restart"
    )
    assert sum(again["dockerd"]["restarts"].values()) == 1


def test_a_stopped_dockerd_is_replaced_and_its_container_lives(
    supervised: Supervised, dockerd: PrivateDockerd
) -> None:
    supervised.settings = {"dockerd": dockerd.settings()}
    supervised.start()
    first = supervised.when(running, "a running dockerd")["dockerd"]["process"]
    container = dockerd.run_container()
    inside = dockerd.pid_of(container)
    os.kill(first["pid"], signal.SIGSTOP)
    for state in ("unresponsive", "stopping"):
        status = supervised.when(lambda r, state=state: r["dockerd"]["state"] == state, state)  # type: ignore[misc]
        assert status["dockerd"]["process"] == first
    again = supervised.when(
        lambda r: running(r) and r["dockerd"]["process"] != first, "its restart"
    )
    assert again["dockerd"]["restarts"] == {"hung": 1}
    assert dockerd.pid_of(container) == inside


def test_a_silent_dockerd_at_work_is_left_alone_until_it_idles(
    supervised: Supervised, dockerd: PrivateDockerd
) -> None:
    with authz.plugin() as plugin:
        supervised.settings = {
            "dockerd": dockerd.settings(
                args=(*dockerd.args, plugin.flag),
                hung_after_s=0.5,
                ping_timeout_s=0.3,
                ping_interval_s=0.1,
            )
        }
        supervised.start()
        first = supervised.when(running, "a running dockerd")["dockerd"]["process"]
        with authz.importing(dockerd):
            plugin.silence()
            earlier = supervised.when(lambda r: r["dockerd"]["state"] == "unresponsive", "silence")
            later = supervised.when(
                lambda r: r["beat_s"] > earlier["beat_s"] + 4, "many more looks"
            )
            assert later["dockerd"]["state"] == "unresponsive"
            assert later["dockerd"]["process"] == first
            assert "once it does no work" in later["dockerd"]["detail"]
        supervised.when(lambda r: r["dockerd"]["state"] == "stopping", "its end")
        plugin.speak()
        again = supervised.when(
            lambda r: running(r) and r["dockerd"]["process"] != first, "its restart"
        )
        assert again["dockerd"]["restarts"] == {"hung": 1}


def test_a_foreign_dockerd_is_watched_and_replaced_only_once_it_is_gone(
    supervised: Supervised, dockerd: PrivateDockerd
) -> None:
    with (dockerd.root / "log").open("wb") as log:
        foreign = subprocess.Popen(dockerd.argv(), stdout=log, stderr=log)
    until(dockerd.answers, "the foreign dockerd")
    supervised.settings = {"dockerd": dockerd.settings(hung_after_s=0.5, ping_timeout_s=0.3)}
    supervised.start()
    status = supervised.when(running, "it")["dockerd"]
    assert status["owner"] == "other"
    assert status["process"]["pid"] == foreign.pid
    foreign.kill()
    foreign.wait()
    status = supervised.when(lambda r: running(r) and r["dockerd"]["owner"] == "gpud", "ours")
    assert status["dockerd"]["process"]["pid"] != foreign.pid


@pytest.mark.parametrize(("name", "uid"), [("sleep", 0), ("dockerd", 65534)])
def test_a_stale_pidfile_that_names_a_stranger_does_not_keep_dockerd_down(
    supervised: Supervised, dockerd: PrivateDockerd, name: str, uid: int
) -> None:
    program = supervised.home / name
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen([program, "1000"], user=uid) as stranger:
        try:
            until(lambda: process.name(stranger.pid) == name, "its program")
            Path(dockerd.pidfile).write_text(str(stranger.pid))
            supervised.settings = {"dockerd": dockerd.settings()}
            supervised.start()
            status = supervised.when(running, "a running dockerd")["dockerd"]
            assert status["restarts"] == {}
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_the_policy_observe_starts_nothing(supervised: Supervised, dockerd: PrivateDockerd) -> None:
    supervised.settings = {"dockerd": dockerd.settings(policy="observe")}
    supervised.start()
    status = supervised.when(lambda r: r["dockerd"]["state"] == "absent", "no dockerd")["dockerd"]
    assert status["up"] is False
    assert status["owner"] == "none"
    assert dockerd.pids() == []


def test_live_restore_switched_on_by_sighup_is_reported(
    supervised: Supervised, dockerd: PrivateDockerd
) -> None:
    file = dockerd.root / "daemon.json"
    file.write_text("{}")
    args = [a for a in dockerd.args if a != "--live-restore"]
    settings = dockerd.settings(args=[*args, f"--config-file={file}"], ping_interval_s=0.1)
    supervised.settings = {"dockerd": settings}
    supervised.start()
    before = supervised.when(lambda r: r["dockerd"]["live_restore"] is False, "the default")
    file.write_text('{"live-restore": true}')
    os.kill(before["dockerd"]["process"]["pid"], signal.SIGHUP)
    after = supervised.when(lambda r: r["dockerd"]["live_restore"], "the new setting")
    assert after["dockerd"]["process"] == before["dockerd"]["process"]
