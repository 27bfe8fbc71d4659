"""dockerd, access to it and the container toolkit: judged from what a machine shows."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest

from gpud.core.report import Owner, ToolkitReport, ToolkitState
from gpud.core.toolkit import ToolkitFacts, judged
from gpud.doctor import docker as dockerd
from gpud.doctor.checks import (
    docker,
    docker_access,
    live_restore,
    toolkit,
)
from gpud.doctor.docker import Api, Seen
from gpud.doctor.finding import Verdict
from tests.doctor.trees import (
    LINUX,
    PERSON,
    WSL2,
    dockerd_up,
    machine,
    program,
    report,
    said,
)

if TYPE_CHECKING:
    from pathlib import Path


OK, UNKNOWN, ADVICE, PROBLEM = Verdict.OK, Verdict.UNKNOWN, Verdict.ADVICE, Verdict.PROBLEM


def test_roots_word_on_dockerd_is_passed_on_with_its_fix() -> None:
    said(docker.reported(dockerd_up()), OK, "20.10.24+dfsg1, kept by gpud")
    down = dockerd_up(up=False, state="down", reason="x", detail="no space left", fix="make room")
    found = docker.reported(down)
    said(found, PROBLEM, "no space left")
    assert found.fix == "make room"
    said(docker.reported(dockerd_up(reason="x", detail="slow")), ADVICE, "slow")


def test_a_machine_without_a_dockerd_that_gpud_only_watches_gets_advice() -> None:
    nobody = {"up": False, "state": "absent", "reason": "absent", "owner": Owner.NONE}
    found = docker.reported(dockerd_up(**nobody, policy="observe", detail="no dockerd", fix="so"))
    said(found, ADVICE, "no dockerd")
    assert found.fix == "so"


def test_no_fix_of_a_dockerd_that_is_down_leads_back_to_the_status() -> None:
    found = docker.reported(dockerd_up(up=False, state="unresponsive", reason="hung", detail="x"))
    said(found, PROBLEM, "down: x")
    assert "gpud logs --component dockerd" in (found.fix or "")
    assert "gpud status" not in (found.fix or "")


@pytest.mark.parametrize(
    ("api", "owner", "program", "wanted", "verdict"),
    [
        (Api.ANSWERS, None, None, True, OK),
        (Api.DENIED, None, "/usr/sbin/dockerd", True, OK),
        (Api.SILENT, None, "/usr/sbin/dockerd", True, PROBLEM),
        (Api.REFUSED, None, "/usr/sbin/dockerd", True, PROBLEM),
        (Api.ABSENT, None, "/usr/sbin/dockerd", False, ADVICE),
        (Api.ABSENT, Owner.SYSTEMD, "/usr/sbin/dockerd", False, PROBLEM),
        (Api.ABSENT, None, None, True, ADVICE),
    ],
)
def test_without_root_the_socket_tells(
    api: Api, owner: Owner | None, program: str | None, *, wanted: bool, verdict: Verdict
) -> None:
    found = docker.looked(Seen(api, "24.0"), owner, program, wanted=wanted)
    assert found.verdict is verdict


def test_a_broken_daemon_json_is_a_problem_however_well_dockerd_runs(tmp_path: Path) -> None:
    program(tmp_path, "dockerd")
    files = LINUX | {"/etc/docker/daemon.json": '{"debug": true,}'}
    said(docker.look(machine(tmp_path, files, root=report())), PROBLEM, "daemon.json is not JSON")


def test_docker_desktop_beside_an_engine_is_told(tmp_path: Path) -> None:
    program(tmp_path, "dockerd")
    files = WSL2 | {"/mnt/wsl/docker-desktop/cli-tools/x": ""}
    desktop = report(dockerd_up(owner=Owner.DOCKER_DESKTOP))
    said(docker.look(machine(tmp_path, files, root=desktop)), ADVICE, "an engine too")


def test_a_socket_where_nobody_listens_is_told_from_none_and_from_one_that_is_silent(
    tmp_path: Path,
) -> None:
    assert dockerd.knock(str(tmp_path / "none.sock")).api is Api.ABSENT
    place = str(tmp_path / "docker.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place)
        listener.listen()
        assert dockerd.knock(place).api is Api.SILENT
    assert dockerd.knock(place).api is Api.REFUSED


def test_permission_denied_means_a_session_older_than_the_group() -> None:
    judged = docker_access.judged
    member, stranger = ("bob", "ada"), ("bob",)
    said(judged(Api.DENIED, PERSON, 990, member), ADVICE, "you are in group docker, and")
    found = judged(Api.DENIED, PERSON, 990, stranger)
    said(found, ADVICE, "not in group docker")
    assert "equals root" in (found.fix or "")
    said(judged(Api.ANSWERS, PERSON, 990, member), OK, "equals root")
    said(judged(Api.ABSENT, PERSON, 990, member), UNKNOWN, "down")


def test_a_group_is_found_in_its_file() -> None:
    text = "root:x:0:\ndocker:x:990:bob,ada\nbroken\ndockerx:x:1:eve\n"
    assert docker_access.group(text, "docker") == (990, ("bob", "ada"))
    assert docker_access.group(text, "broken") == (None, ())


@pytest.mark.parametrize(
    ("runs", "wanted", "verdict"),
    [
        (True, False, OK),
        (None, True, OK),
        (False, False, ADVICE),
        (None, False, ADVICE),
        (False, True, ADVICE),
    ],
)
def test_live_restore_is_advised(runs: bool | None, *, wanted: bool, verdict: Verdict) -> None:  # noqa: FBT001
    found = live_restore.judged(runs, wanted=wanted)
    assert found.verdict is verdict
    assert (found.fix is None) == (verdict is OK)


def test_the_line_for_daemon_json_is_given_whole(tmp_path: Path) -> None:
    off = report(dockerd_up(live_restore=False))
    found = live_restore.look(machine(tmp_path, LINUX, root=off))
    assert 'add "live-restore": true to /etc/docker/daemon.json' in (found.fix or "")


def test_a_toolkit_is_judged_by_programs_runtimes_and_cdi_files(tmp_path: Path) -> None:
    files = WSL2 | {"/etc/docker/daemon.json": json.dumps({"runtimes": {"nvidia": {}}})}
    said(toolkit.look(machine(tmp_path, files)), PROBLEM, "there is no nvidia-container-runtime")
    program(tmp_path, "nvidia-container-runtime-hook")  # all that `--gpus` needs
    said(toolkit.look(machine(tmp_path, files)), OK, "`--gpus`")
    cdi = {"/etc/cdi/nvidia.yaml": "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n"}
    said(toolkit.look(machine(tmp_path / "cdi", WSL2 | cdi)), OK, "by CDI")
    said(toolkit.unasked(judged(ToolkitFacts()), gpu=True), ADVICE, "not installed")
    said(toolkit.unasked(judged(ToolkitFacts()), gpu=False), OK, "no GPU")


def test_what_root_says_of_the_toolkit_is_passed_on_and_so_is_a_container_that_failed() -> None:
    broken = ToolkitReport(ToolkitState.BROKEN, "r", "not reloaded", "restart it")
    said(toolkit.reported(broken), PROBLEM, "not reloaded")
    both = ToolkitReport(ToolkitState.BOTH)
    said(toolkit.reported(both), OK, "`--gpus` and CDI")
    assert toolkit.ran({"level": 1, "reason": "toolkit_not_installed"}) is None
    failed = toolkit.ran({"level": 2, "reason": "hung", "detail": "no end", "fix": "x"})
    assert failed is not None
    said(failed, PROBLEM, "no end")
    slower = toolkit.ran({"level": 1, "reason": "slower", "detail": "half as fast"})
    assert slower is not None
    said(slower, ADVICE, "half as fast")


def test_docker_host_may_name_the_same_socket_by_another_way(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("../run")
    for host in ("unix:///var/run/docker.sock", "unix:///run/docker.sock"):
        seen = docker_access.look(machine(tmp_path, {}, environ={"DOCKER_HOST": host}))
        assert "dockerd is down" in seen.evidence
    for host in ("unix:///srv/docker.sock", "tcp://127.0.0.1:2375", "ssh://there"):
        seen = docker_access.look(machine(tmp_path, {}, environ={"DOCKER_HOST": host}))
        assert "another one" in seen.evidence
