"""Process of the container probe: ``python -I -m gpud.root.container_probe JOB``.

The only place that imports the docker SDK, which weighs as much as a third of the supervisor and
blocks (ADR 8). It looks at the toolkit, removes containers that an earlier process left behind,
fetches the image or runs the sample, and prints one ``TaskResult`` on stdout. Its input is the
``ContainerJob`` that the supervisor writes, and dockerd.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import docker
import msgspec
from docker.errors import APIError, DockerException, ImageNotFound
from docker.types import DeviceRequest, LogConfig

from gpud import regular_file
from gpud.core.advice import Situation, platform, worded
from gpud.core.errors import ProbeError, WireError
from gpud.core.report import (
    ContainerFailure,
    ContainerFigure,
    ContainerRun,
    ToolkitReport,
    ToolkitState,
)
from gpud.core.sample import Failure, Reason
from gpud.core.toolkit import CDI_KIND, PROGRAMS, ToolkitFacts, judged
from gpud.root import daemonconfig, drop
from gpud.root.container_output import explained, parsed
from gpud.root.containers import ContainerJob, Task, TaskResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

LABEL = "gpud.container_probe"
"""On every container of gpud's; its value is the gpud that made it."""
CALL_S = 15.0
"""dockerd's time for one ordinary answer."""
PULL_SILENCE_S = 300.0
"""A slow disk is silent while it unpacks a layer."""
COMMAND = ("nbody", "-gpu", "-benchmark", "-i=50")
"""Fifty iterations instead of ten: long enough to leave the idle clock, under a second on a GPU
that takes 17 ms for one."""
ENVIRONMENT = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # the index it prints is then everybody's
UNPRIVILEGED = "65534:65534"
MEMORY = "2g"
MOST_PROCESSES = 128
LOG = LogConfig(type=LogConfig.types.JSON, config={"max-size": "64k", "max-file": "1"})
LAST_LINES = 200
LARGEST_MEMORY = 512 << 20
"""Of this process: an answer without an end ends it, and no other."""

CDI_DIRS = ("/etc/cdi", "/var/run/cdi")
MOST_SPECS = 32
LARGEST_SPEC = 256 * 1024
_OFFERS_GPUS = re.compile(rf'^\s*"?kind"?\s*:\s*"?{re.escape(CDI_KIND)}"?\s*,?\s*$', re.MULTILINE)

Client: TypeAlias = Any  # docker.APIClient; the SDK has no types


def main(argv: Sequence[str]) -> int:
    """Do one job and print its result; the exit code is 0 whenever there is a result."""
    job = msgspec.json.decode(argv[0], type=ContainerJob)
    resource.setrlimit(resource.RLIMIT_AS, (LARGEST_MEMORY, LARGEST_MEMORY))
    drop.prctl(drop.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != job.parent:
        return 1  # the supervisor died before the line above took hold
    sys.stdout.buffer.write(msgspec.json.encode(perform(job)))
    return 0


def perform(job: ContainerJob) -> TaskResult:
    """Do the task. Errors: none that are Docker's or the sample's; they are in the result."""
    try:
        with contextlib.closing(
            docker.APIClient(base_url=f"unix://{job.socket}", timeout=CALL_S)
        ) as client:
            clear(client, job)
            report = judged(toolkit_facts(client.info(), job))
            failure = _pull(client, job.image) if job.task is Task.PULL else None
            present = failure is None and _present(client, job.image)
            if job.task is Task.PULL and failure is None and not present:
                detail = f"dockerd fetched {job.image} and does not have it"
                failure = Failure(Reason.PULL_FAILED, detail)
            run = _run(client, job, report) if job.task is Task.RUN else None
            return TaskResult(report, present, run, failure)
    except (DockerException, OSError) as error:  # every error of requests is an OSError
        return TaskResult(failure=_lost(error))


def toolkit_facts(info: Mapping[str, Any], job: ContainerJob) -> ToolkitFacts:
    """Return what dockerd's ``/info`` and the files say of the toolkit; nothing is run."""
    runtimes = info.get("Runtimes")
    configured = daemonconfig.document(job.config_file).get("runtimes")
    return ToolkitFacts(
        version=info.get("ServerVersion"),
        runtimes=None if runtimes is None else tuple(sorted(runtimes)),
        cdi_dirs=tuple(info.get("CDISpecDirs") or ()),
        cdi_devices=tuple(device["ID"] for device in info.get("DiscoveredDevices") or ()),
        configured=tuple(sorted(configured)) if isinstance(configured, dict) else (),
        programs=tuple(name for name in PROGRAMS if shutil.which(name, path=job.path)),
        cdi_specs=tuple(cdi_specs(CDI_DIRS)),
        desktop=job.desktop,
    )


def cdi_specs(directories: Iterable[str]) -> Iterator[str]:
    """Yield the CDI files that offer GPUs."""
    for directory in directories:
        with contextlib.suppress(OSError):
            for file in sorted(Path(directory).iterdir())[:MOST_SPECS]:
                text = regular_file.text(file, LARGEST_SPEC) or ""
                if file.suffix in {".yaml", ".json"} and _OFFERS_GPUS.search(text):
                    yield str(file)


def clear(client: Client, job: ContainerJob) -> None:
    """Stop and remove containers of an earlier process of this gpud, by their label."""
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


def _pull(client: Client, image: str) -> Failure | None:
    client.timeout = PULL_SILENCE_S
    try:
        for progress in client.pull(image, stream=True, decode=True):
            if "error" in progress:
                return Failure(Reason.PULL_FAILED, str(progress["error"])[:4000])
    except (DockerException, OSError) as error:
        return Failure(Reason.PULL_FAILED, _text(error))
    return None


def _run(client: Client, job: ContainerJob, report: ToolkitReport) -> ContainerRun:
    started_s, figure, failure = time.monotonic(), None, None
    try:
        figure = measured(client, job, cdi=report.state == ToolkitState.CDI)
    except ProbeError as error:
        failure = error.failure
    except APIError as error:
        failure = explained(_text(error), Reason.DOCKER_ERROR)
    except (DockerException, OSError) as error:
        failure = _lost(error)
    now_s = time.monotonic()
    if failure is not None:
        failure = worded(failure, platform(os.uname().release))
    reported = ContainerFailure.of(failure)
    return ContainerRun(time.time(), now_s, now_s - started_s, figure, reported)


def measured(client: Client, job: ContainerJob, *, cdi: bool) -> ContainerFigure:
    """Run the sample with all GPUs and read its figure.

    Errors: ``ProbeError`` for what the container did, the SDK's own for what dockerd did.
    """
    made = client.create_container(
        job.image,
        command=list(COMMAND),
        environment=ENVIRONMENT,
        user=UNPRIVILEGED,
        labels={LABEL: job.owner},
        host_config=_confined(client, cdi=cdi),
    )
    try:
        client.start(made["Id"])
        return _figure(client, made["Id"], job.deadline_s)
    finally:
        # One that stays is removed by the next process; the figure is good all the same.
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
    output = client.logs(container, stdout=True, stderr=False, tail=LAST_LINES)
    text = output.decode(errors="replace")
    if code != 0:
        complaint = client.logs(container, stdout=False, stderr=True, tail=LAST_LINES)
        last = (complaint.decode(errors="replace").strip() or text.strip())[-2000:]
        failure = explained(f"exit code {code}: {last}", Reason.CONTAINER_FAILED)
        raise ProbeError(failure)
    try:
        return parsed(text)
    except WireError as error:
        raise ProbeError(Failure(Reason.BAD_OUTPUT, str(error))) from error


def _lost(error: Exception) -> Failure:
    return Failure(Reason.DOCKERD_LOST, f"dockerd did not answer: {_text(error)}"[:600])


def _text(error: Exception) -> str:
    return str(error.explanation if isinstance(error, APIError) else error)[:4000]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
