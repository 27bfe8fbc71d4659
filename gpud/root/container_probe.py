"""``python -I -m gpud.root.container_probe TASK ...``: a short life beside the supervisor.

The only place that imports the docker SDK, which weighs as much as a third of the supervisor and
blocks (ADR 8). It looks at the toolkit, removes containers an earlier life left behind, fetches the
image or runs the sample, prints one ``Word`` on stdout and is gone. It takes nothing from anybody
but its command line, which the supervisor writes, and dockerd.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import signal
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import docker
from docker.errors import APIError, DockerException, ImageNotFound
from docker.types import DeviceRequest, LogConfig

from gpud.core import containers, wire
from gpud.core.advice import Situation, platform, worded
from gpud.core.container_plan import Task, Word
from gpud.core.errors import ProbeError, WireError
from gpud.core.report import ContainerFigure, ContainerRun, ToolkitReport, ToolkitState
from gpud.core.sample import Failure, Reason
from gpud.core.toolkit import CDI_KIND, explained, judged
from gpud.root import process, toolkit

if TYPE_CHECKING:
    from collections.abc import Sequence

LABEL = "gpud.container_probe"
"""On every container of gpud's; its value tells the gpud that made it from all others."""
CALL_S = 15.0
"""dockerd's time for one ordinary answer."""
PULL_SILENCE_S = 300.0
"""A slow disk is silent while it unpacks a layer."""
STOP_S = 30
"""A program that uses the GPU gets this long to end by itself before Docker kills it."""
COMMAND = ("nbody", "-gpu", "-benchmark", "-i=50")
"""Fifty iterations instead of ten: long enough to leave the idle clock, under a second on a GPU
that takes 17 ms for one."""
ENVIRONMENT = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # the index it prints is then everybody's
NOBODY = "65534:65534"
MEMORY = "2g"
MOST_PROCESSES = 128
LOG = LogConfig(type=LogConfig.types.JSON, config={"max-size": "64k", "max-file": "1"})
LAST_LINES = 200
LARGEST_MEMORY = 512 << 20
"""Of this process: an answer without an end is its end, and nobody else's."""

Client: TypeAlias = Any  # docker.APIClient; the SDK has no types


@dataclass(frozen=True, slots=True)
class Job:
    """What is asked of one life."""

    task: Task
    socket: str
    image: str
    deadline_s: float
    stop_s: int
    owner: str  # the value of the label
    dockerd: int | None
    desktop: bool


def main(argv: Sequence[str]) -> int:
    """Do one task and print its word; the exit code is 0 whenever there is a word."""
    parser = argparse.ArgumentParser(prog="gpud.root.container_probe")
    parser.add_argument("task", type=Task)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--image", required=True)
    parser.add_argument("--deadline", type=float, required=True)
    parser.add_argument("--owner", required=True)
    parser.add_argument("--stop", type=int, default=STOP_S)
    parser.add_argument("--dockerd", type=int)
    parser.add_argument("--desktop", action="store_true")
    parser.add_argument("--parent", type=int, required=True)
    given = parser.parse_args(argv)
    resource.setrlimit(resource.RLIMIT_AS, (LARGEST_MEMORY, LARGEST_MEMORY))
    process.prctl(process.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != given.parent:
        return 1  # the supervisor died before the line above took hold
    job = Job(
        given.task,
        given.socket,
        given.image,
        given.deadline,
        given.stop,
        given.owner,
        given.dockerd,
        given.desktop,
    )
    sys.stdout.buffer.write(wire.encode(word(job)))
    return 0


def word(job: Job) -> Word:
    """Do the task. Errors: none that are Docker's or the sample's; they are in the word."""
    try:
        with contextlib.closing(
            docker.APIClient(base_url=f"unix://{job.socket}", timeout=CALL_S)
        ) as client:
            clear(client, job)
            seen = judged(toolkit.facts(client.info(), job.dockerd, desktop=job.desktop))
            if job.task is Task.PULL:
                return _pulled(client, job, seen)
            present = _present(client, job.image)
            if job.task is Task.LOOK:
                return Word(seen, present)
            return Word(seen, present, _ran(client, job, seen))
    except (DockerException, OSError) as error:  # every error of requests is an OSError
        return Word(failure=_lost(error))


def clear(client: Client, job: Job) -> None:
    """Stop and remove what an earlier life left behind: its own containers, by their label."""
    ours = {"label": f"{LABEL}={job.owner}"}
    for left in client.containers(all=True, filters=ours):
        with contextlib.suppress(DockerException, OSError):  # one that stays is tried again
            _remove(client, left["Id"], job.stop_s)


def _remove(client: Client, container: str, stop_s: int) -> None:
    with contextlib.suppress(APIError):
        client.stop(container, timeout=stop_s)
    client.remove_container(container, force=True, v=True)


def _present(client: Client, image: str) -> bool:
    try:
        client.inspect_image(image)
    except ImageNotFound:
        return False
    return True


def _pulled(client: Client, job: Job, seen: ToolkitReport) -> Word:
    client.timeout = PULL_SILENCE_S
    try:
        for _ in client.pull(job.image, stream=True, decode=True):
            pass  # its progress; the image is there or not afterwards
    except (DockerException, OSError) as error:
        return Word(seen, image_present=False, failure=Failure(Reason.PULL_FAILED, _text(error)))
    if _present(client, job.image):
        return Word(seen, image_present=True)
    detail = f"dockerd fetched {job.image} and does not have it"
    return Word(seen, image_present=False, failure=Failure(Reason.PULL_FAILED, detail))


def _ran(client: Client, job: Job, seen: ToolkitReport) -> ContainerRun:
    began_s = time.monotonic()
    figure, failure = None, None
    try:
        figure = measured(client, job, cdi=seen.state is ToolkitState.CDI)
    except ProbeError as error:
        failure = error.failure
    except APIError as error:
        failure = explained(_text(error), Reason.DOCKER_ERROR)
    except (DockerException, OSError) as error:
        failure = _lost(error)
    now_s = time.monotonic()
    if failure is not None:
        failure = worded(failure, platform(os.uname().release))
    return ContainerRun(time.time(), now_s, now_s - began_s, figure, failure)


def measured(client: Client, job: Job, *, cdi: bool) -> ContainerFigure:
    """Run the sample with all GPUs and read its figure.

    Errors: ``ProbeError`` for what the container did, the SDK's own for what dockerd did.
    """
    made = client.create_container(
        job.image,
        command=list(COMMAND),
        environment=ENVIRONMENT,
        user=NOBODY,
        labels={LABEL: job.owner},
        host_config=_confined(client, cdi=cdi),
    )
    try:
        client.start(made["Id"])
        return _figure(client, made["Id"], job.deadline_s)
    finally:
        # One that stays is removed by the next life; the figure is good all the same.
        with contextlib.suppress(DockerException, OSError):
            _remove(client, made["Id"], job.stop_s)


def _confined(client: Client, *, cdi: bool) -> dict[str, Any]:
    """Ask for every GPU and for nothing else."""
    gpus = (
        DeviceRequest(driver="cdi", device_ids=[f"{CDI_KIND}=all"])
        if cdi
        else DeviceRequest(count=-1, capabilities=[["gpu"]])
    )
    config: dict[str, Any] = client.create_host_config(
        device_requests=[gpus],
        network_mode="none",
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        mem_limit=MEMORY,
        pids_limit=MOST_PROCESSES,
        log_config=LOG,
    )
    return config


def _figure(client: Client, container: str, deadline_s: float) -> ContainerFigure:
    try:
        code = client.wait(container, timeout=deadline_s)["StatusCode"]
    except OSError as error:
        if not client.inspect_container(container)["State"]["Running"]:
            raise
        detail = f"the container did not end within {deadline_s:g} s and was stopped"
        raise ProbeError(Failure(Reason.HUNG, detail, advice=Situation.CONTAINER_HUNG)) from error
    said = client.logs(container, stdout=True, stderr=False, tail=LAST_LINES)
    output = said.decode(errors="replace")
    if code != 0:
        complaint = client.logs(container, stdout=False, stderr=True, tail=LAST_LINES)
        last = (complaint.decode(errors="replace").strip() or output.strip())[-2000:]
        failure = explained(f"exit code {code}: {last}", Reason.CONTAINER_FAILED)
        raise ProbeError(failure)
    try:
        return containers.parsed(output)
    except WireError as error:
        raise ProbeError(Failure(Reason.BAD_OUTPUT, str(error))) from error


def _lost(error: Exception) -> Failure:
    return Failure(Reason.DOCKERD_LOST, f"dockerd did not answer: {_text(error)}"[:600])


def _text(error: Exception) -> str:
    return str(error.explanation if isinstance(error, APIError) else error)[:4000]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
