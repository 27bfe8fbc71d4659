"""The sample in a container of a real dockerd, by the very program the supervisor starts.

Only NVIDIA's hook is stood in for: dockerd offers GPUs as soon as something of that name is on its
PATH. Without it the error is the one every person without the toolkit sees.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from gpud.core.report import ContainerFailure, ToolkitState
from gpud.core.sample import Reason
from gpud.root.conditions import PATH
from gpud.root.container_probe import LABEL
from gpud.root.containers import ContainerJob, Task, TaskResult
from tests.root.sample import PRINTED, gpu_docker, usable
from tests.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.root.sample import GpuDocker

pytestmark = pytest.mark.skipif(not usable(), reason="needs root, dockerd and busybox-static")

NO_ADAPTER = "nvidia-container-cli: initialization error: WSL environment detected but no adapters"
STUBBORN = "trap 'exit 0' TERM; while :; do sleep 0.1; done"


@pytest.fixture(scope="module")
def bare() -> Iterator[GpuDocker]:
    with gpu_docker(None) as made:
        yield made


@pytest.fixture(scope="module")
def fitted() -> Iterator[GpuDocker]:
    with gpu_docker("exit 0") as made:
        yield made


PROBE = [sys.executable, "-I", "-m", "gpud.root.container_probe"]


def argv(gpu: GpuDocker, task: Task, image: str, **changed: Any) -> list[str]:
    job = ContainerJob(
        task,
        gpu.dockerd.socket,
        image,
        deadline_s=10,
        owner="/run/mine",
        parent=os.getpid(),
        path=f"{gpu.dockerd.root / 'bin'}:{PATH}",
        stop_s=2,
    )
    return [*PROBE, msgspec.json.encode(msgspec.structs.replace(job, **changed)).decode()]


def perform(gpu: GpuDocker, task: Task, image: str, **changed: Any) -> TaskResult:
    done = subprocess.run(
        argv(gpu, task, image, **changed), capture_output=True, timeout=LIMIT_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return decoded(done.stdout)


def failed(gpu: GpuDocker, image: str, **changed: Any) -> ContainerFailure:
    """Run an image to its failure, of which nothing is left."""
    run = perform(gpu, Task.RUN, image, **changed).run
    assert containers(gpu) == []
    assert run is not None
    assert run.failure is not None
    return run.failure


def decoded(output: bytes) -> TaskResult:
    return msgspec.json.decode(output, type=TaskResult)


def containers(gpu: GpuDocker, **labels: str) -> list[dict[str, Any]]:
    expected = {"label": [f"{key}={value}" for key, value in labels.items()]}
    with contextlib.closing(gpu.dockerd.client()) as client:
        result: list[dict[str, Any]] = client.containers(all=True, filters=expected)
        return result


def ours(gpu: GpuDocker) -> list[dict[str, Any]]:
    return containers(gpu, **{LABEL: "/run/mine"})


def test_the_figures_of_a_run_come_home_and_nothing_of_it_stays(fitted: GpuDocker) -> None:
    word = perform(fitted, Task.RUN, fitted.printing(PRINTED))
    assert word.toolkit is not None
    assert word.toolkit.state == ToolkitState.RUNTIME
    assert word.run is not None
    assert word.run.figure is not None
    assert word.run.figure.flops_per_second == pytest.approx(3.863604e12)
    assert word.run.failure is None
    assert containers(fitted) == []


def test_without_the_toolkit_dockers_own_error_is_reported_as_such(bare: GpuDocker) -> None:
    image = bare.printing(PRINTED)
    toolkit = perform(bare, Task.LOOK, image).toolkit
    assert toolkit is not None
    assert (toolkit.state, toolkit.reason) == (ToolkitState.NONE, "not_installed")
    failure = failed(bare, image)
    assert failure.reason is Reason.TOOLKIT_MISSING
    assert 'could not select device driver "" with capabilities: [[gpu]]' in failure.detail
    assert "--gpu-containers" in (failure.advice or "")


def test_an_error_of_the_toolkits_hook_is_explained_out_of_dockers_wrapping() -> None:
    with gpu_docker(f"echo '{NO_ADAPTER} were found' >&2; exit 1") as gpu:
        failure = failed(gpu, gpu.printing(PRINTED))
    assert failure.reason is Reason.NO_DEVICE
    assert NO_ADAPTER in failure.detail


@pytest.mark.parametrize(
    ("script", "reason", "words"),
    [
        ("exit 0", Reason.BAD_OUTPUT, "it printed nothing"),
        ("cat /bin/sh", Reason.BAD_OUTPUT, ""),
        ("yes | head -c 300000; exit 0", Reason.BAD_OUTPUT, "no line with the device"),
        ("echo oh dear >&2; exit 3", Reason.CONTAINER_FAILED, "exit code 3: oh dear"),
        (
            "echo 'Error: only 0 Devices available, 1 requested.  Exiting.'; exit 1",
            Reason.NO_DEVICE,
            "only 0 Devices available",
        ),
        ("exit 139", Reason.CONTAINER_FAILED, "exit code 139"),
    ],
)
def test_a_container_that_does_something_else_is_a_failure_with_its_words(
    fitted: GpuDocker, script: str, reason: Reason, words: str
) -> None:
    failure = failed(fitted, fitted.image(script))
    assert failure.reason is reason
    assert words in failure.detail
    assert len(failure.detail) < 1000


@pytest.mark.parametrize("script", ["while :; do echo yes; done", STUBBORN])
def test_a_container_that_never_ends_is_stopped_and_removed(fitted: GpuDocker, script: str) -> None:
    failure = failed(fitted, fitted.image(script), deadline_s=1)
    assert failure.reason is Reason.HUNG
    assert "within 1 s" in failure.detail


def test_absent_image_is_fetched_only_when_asked_and_then_dockers_words_are_told(
    bare: GpuDocker,
) -> None:
    absent, began = "127.0.0.1:1/nobody/has:this", int(time.time())
    word = perform(bare, Task.LOOK, absent)
    assert (word.image_present, word.run) == (False, None)
    with contextlib.closing(bare.dockerd.client()) as client:
        observation = list(client.events(since=began - 1, until=int(time.time()) + 1, decode=True))
    assert [event for event in observation if event["Action"] == "pull"] == []
    failure = perform(bare, Task.PULL, absent).failure
    assert failure is not None
    assert failure.reason is Reason.PULL_FAILED
    assert "connection refused" in failure.detail


def test_the_container_gets_gpus_and_nothing_else(fitted: GpuDocker) -> None:
    running = subprocess.Popen(
        argv(fitted, Task.RUN, fitted.image(STUBBORN)), stdout=subprocess.PIPE
    )
    with running:
        try:
            result = until(lambda: [c for c in ours(fitted) if c["State"] == "running"], "it")
            with contextlib.closing(fitted.dockerd.client()) as client:
                facts = client.inspect_container(result[0]["Id"])
        finally:
            running.kill()
    host = facts["HostConfig"]
    assert host["DeviceRequests"][0]["Count"] == -1
    assert host["DeviceRequests"][0]["Capabilities"] == [["gpu"]]
    assert (host["NetworkMode"], host["ReadonlyRootfs"], host["CapDrop"]) == ("none", True, ["ALL"])
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert (host["Privileged"], host["Binds"], host.get("Mounts")) == (False, None, None)
    assert host["LogConfig"]["Config"] == {"max-size": "64k", "max-file": "1"}
    assert host["Memory"] > 0
    assert host["PidsLimit"] > 0
    assert facts["Config"]["User"] == "65534:65534"
    assert facts["Mounts"] == []


def test_leftover_container_of_a_killed_probe_is_removed_and_no_other(
    fitted: GpuDocker,
) -> None:
    image = fitted.image(STUBBORN)
    with contextlib.closing(fitted.dockerd.client()) as client:
        host = client.create_host_config(network_mode="none")
        for labels in ({}, {LABEL: "/run/other"}):
            client.create_container(image, command=["nbody"], labels=labels, host_config=host)
    with subprocess.Popen(argv(fitted, Task.RUN, image), stdout=subprocess.PIPE) as life:
        until(lambda: [c for c in ours(fitted) if c["State"] == "running"], "its container")
        life.kill()
    assert len(ours(fitted)) == 1
    assert perform(fitted, Task.LOOK, image).image_present is True
    assert ours(fitted) == []
    others = containers(fitted)
    assert len(others) == 2
    with contextlib.closing(fitted.dockerd.client()) as client:
        for other in others:
            client.remove_container(other["Id"], force=True)


def test_a_dockerd_that_dies_in_the_middle_is_what_went_wrong() -> None:
    with gpu_docker("exit 0") as gpu:
        line = argv(gpu, Task.RUN, gpu.image(STUBBORN))
        with subprocess.Popen(line, stdout=subprocess.PIPE) as life:
            until(lambda: [c for c in ours(gpu) if c["State"] == "running"], "its container")
            gpu.process.send_signal(signal.SIGKILL)
            out, _ = life.communicate(timeout=LIMIT_S)
    word = decoded(out)
    failure = word.failure or (word.run.failure if word.run else None)
    assert failure is not None
    assert failure.reason is Reason.DOCKERD_LOST


def test_the_supervisor_itself_never_loads_the_docker_sdk() -> None:
    code = "import gpud.root.supervisor, sys; sys.exit('docker' in sys.modules)"
    assert subprocess.run([sys.executable, "-I", "-c", code], check=False).returncode == 0
