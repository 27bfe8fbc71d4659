"""GPU containers in one step: NVIDIA's repository and toolkit, Docker's runtime for it, a sample.

Root's, and only by the installed gpud. Repository, toolkit and runtime stay when gpud goes, as
Docker does.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from gpud.core.report import Owner
from gpud.core.settings import LOCK
from gpud.core.toolkit import HOOK, RESTART, RUNTIME
from gpud.install import packages
from gpud.install.console import CLEAN, Console, InstallError, output
from gpud.install.places import LOG_DIR, TREE
from gpud.install.setup import Done, Execution, PlanLine, Step, put
from gpud.processes import lived_s
from gpud.reports import latest_root_report
from gpud.root import daemonconfig
from gpud.root.containers import COMMAND, ContainerJob, Task, TaskResult

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from gpud.core.report import DockerdReport
    from gpud.install.setup import Plan
    from gpud.place import Place

PACKAGE: Final = "nvidia-container-toolkit"
REPOSITORY: Final = "https://nvidia.github.io/libnvidia-container"
FINGERPRINT: Final = "C95B321B61E88C1809C4F759DDCAE044F796ECB0"
"""Of NVIDIA's key, since 2017. Source: https://github.com/NVIDIA/libnvidia-container/issues/280."""
KEYRING: Final = Path(f"/usr/share/keyrings/{PACKAGE}-keyring.gpg")
LIST: Final = Path(f"/etc/apt/sources.list.d/{PACKAGE}.list")
LINE: Final = f"deb [signed-by={KEYRING}] {REPOSITORY}/stable/deb/$(ARCH) /\n"
HELPER: Final = "/usr/lib/apt/apt-helper"
"""Fetches a file as apt does, through the proxy and with the certificates of apt's settings."""
CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
ANSWERS_S: Final = 60.0
GPU_S: Final = "120"
"""For how long whoever runs work on the GPU waits for its lock."""
ARMOUR: Final = re.compile(
    rb"-----BEGIN PGP PUBLIC KEY BLOCK-----\n(?:\w+: .*\n)*\n([\w+/=\n]+?)(?:\n=[\w+/]{4})?\n"
    rb"-----END PGP PUBLIC KEY BLOCK-----\s*"
)
LARGEST: Final = 64 << 10
PUBLIC_KEY: Final = 6
"""Tag of the packet that a key begins with."""
PARTIAL: Final = range(224, 255)
"""First octets of a length in parts, which no key has."""


def run(options: argparse.Namespace, place: Place) -> int:
    """Set it up, or in a dry run say what that does; the exit code. Errors: ``InstallError``."""
    place_of_root = "/run" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="gpud-containers-", dir=place_of_root) as folder:
        log = (Path(folder) if options.dry_run else LOG_DIR) / "gpu-containers.log"
        execution = Execution(options, "gpud install --gpu-containers", Console(log))
        execution.console.say("GPU containers" + ("" if options.dry_run else f"; details: {log}"))
        execution.carry_out(_steps(execution, place, Path(folder)))
    for text in execution.later:
        execution.console.say(f"left to do: {text}")
    return int(bool(execution.later))


def _steps(execution: Execution, place: Place, folder: Path) -> Plan:
    settings = place.settings(with_secrets=False)
    config = daemonconfig.read(settings.dockerd)
    if Path("/mnt/wsl/docker-desktop").is_dir():
        raise InstallError(
            "Docker Desktop serves this distribution, and has a toolkit of its own",
            "none is needed: docker run --gpus all",
        )
    if shutil.which("dockerd") is None:
        raise InstallError("there is no Docker here", "sudo apt-get install docker.io iptables")
    for steps in (
        _toolkit(execution, folder),
        _runtime(execution, Path(config.file)),
        _restart(execution, Path(settings.run_dir), Path(config.file)),
        _sample(
            execution,
            Path(settings.run_dir, LOCK),
            ContainerJob(
                Task.LOOK,
                config.socket,
                settings.containers.image,
                settings.containers.deadline_s,
                owner="gpud install",
                parent=os.getpid(),
                config_file=config.file,
            ),
        ),
    ):
        yield from steps
        if execution.later:
            return


def _toolkit(execution: Execution, folder: Path) -> Plan:
    """Plan for the package, and for the repository where none that is known has it."""
    if shutil.which(HOOK):
        yield Done("NVIDIA Container Toolkit")
        return
    apt = shutil.which("apt-get") is not None
    if apt and not LIST.exists() and output("apt-cache", "show", PACKAGE) is None:
        yield from _repository(execution, folder)
        if execution.later:
            return
    sorry = f"{PACKAGE} could not be installed; {execution.console.log} says why"
    why = "Docker hands GPUs to containers by it"
    yield from packages.install(execution, why, [PACKAGE], execution.left(sorry))


def _repository(execution: Execution, folder: Path) -> Plan:
    """Plan for NVIDIA's repository, which is added only where a person agrees."""
    console, again = execution.console, f"then run {execution.command} again"
    console.say(f"{PACKAGE} comes from NVIDIA's own repository, {REPOSITORY}")
    if not execution.dry and not _agreed("Add it to this machine's apt?"):
        execution.later.append(f"agree on a terminal to add NVIDIA's repository: {again}")
        return
    if not CERTIFICATES.exists():
        why = "the repository is read over TLS"
        yield from packages.install(execution, why, ["ca-certificates"], lambda: None)

    def failed() -> None:
        console.show_log(5)
        execution.later.append(
            f"NVIDIA's key could not be fetched or is not the known one, and nothing was added."
            f" Check that the network reaches {REPOSITORY}, {again}"
        )

    key = folder / "key"
    fetch = (HELPER, "download-file", f"{REPOSITORY}/gpgkey", key)

    def keyring() -> None:
        console.run(*fetch)
        put(KEYRING, apt_key(key.read_bytes(), FINGERPRINT), 0o644)

    yield Step(f"{KEYRING} ({FINGERPRINT})", keyring, failed=failed)
    if not execution.later:
        yield Step(str(LIST), partial(put, LIST, LINE.encode(), 0o644))
        execution.apt_updated = False


def _runtime(execution: Execution, file: Path) -> Plan:
    """Plan for Docker's runtime nvidia; every other key of daemon.json stays."""
    content = daemonconfig.document(str(file))
    runtimes = content.get("runtimes", {})
    if "nvidia" in runtimes:
        yield Done(f"{file} (the runtime nvidia)")
        return
    unread = (
        not content and os.path.lexists(file) and file.read_bytes().split() not in ([], [b"{}"])
    )
    if unread or not isinstance(runtimes, dict):
        execution.later.append(f"{file} is no JSON object of root's; correct it, then again")
        return
    nvidia = {"nvidia": {"args": [], "path": RUNTIME}}
    text = json.dumps(content | {"runtimes": runtimes | nvidia}, indent=4, ensure_ascii=False)
    mode = stat.S_IMODE(file.stat().st_mode) if file.exists() else 0o644
    yield Step(f"{file}: the runtime nvidia", partial(put, file, f"{text}\n".encode(), mode))


def _restart(execution: Execution, run_dir: Path, file: Path) -> Plan:
    """Plan for the restart of a dockerd that is older than its toolkit."""
    if execution.dry:
        yield PlanLine("  would: ask to restart dockerd, then run the n-body sample in a container")
        return
    report, hook = latest_root_report(run_dir), shutil.which(HOOK)
    if report is None or not report.dockerd.up or report.dockerd.process is None or hook is None:
        execution.later.append("Docker is not seen to run; gpud status says why")
        return
    dockerd = report.dockerd
    made_s = max(path.stat().st_ctime for path in (Path(hook), file))
    if time.time() - lived_s(report.dockerd.process) > made_s:
        yield Done("dockerd (is younger than its toolkit)")
        return
    ends = "containers run on" if dockerd.live_restore else "containers that run end with it"
    lines = {
        Owner.GPUD: ((TREE / "bin/gpud", "down", "--docker"), (TREE / "bin/gpud", "up")),
        Owner.SYSTEMD: (("systemctl", "restart", "docker"),),
    }.get(Owner(dockerd.owner))
    if lines is None or not _agreed(f"dockerd has to restart to see its toolkit; {ends}. Now?"):
        execution.later.append(f"dockerd has not seen its toolkit yet: {RESTART}")
        return

    def restart() -> None:
        for line in lines:
            execution.console.run(*line, env=CLEAN)
        _await_another(run_dir, dockerd)

    yield Step("dockerd restarts", restart, "gpud status says why it does not answer")


def _await_another(run_dir: Path, before: DockerdReport) -> None:
    """Wait for the next dockerd. Errors: ``InstallError``."""
    until_s = time.monotonic() + ANSWERS_S
    while time.monotonic() < until_s:
        report = latest_root_report(run_dir)
        if report and report.dockerd.up and report.dockerd.process != before.process:
            return
        time.sleep(0.1)
    raise InstallError("dockerd does not answer", "gpud status")


def _sample(execution: Execution, lock: Path, job: ContainerJob) -> Plan:
    """Plan for the image of NVIDIA's sample and one run of it; gpud's own are kept away."""
    if execution.dry:
        return
    results: list[TaskResult] = []

    def failed() -> None:
        execution.console.show_log(5)
        execution.later.append(f"the sample has not run; {execution.console.log} says why")

    def image() -> None:
        perform(Task.LOOK)
        if not results[-1].image_present:
            perform(Task.PULL)

    def perform(task: Task, *before: str | Path) -> None:
        line = (*before, *COMMAND, msgspec.json.encode(msgspec.structs.replace(job, task=task)))
        done = subprocess.run(line, stdout=subprocess.PIPE, env=CLEAN, cwd="/", check=True)
        results.append(result := msgspec.json.decode(done.stdout, type=TaskResult))
        if failure := result.failure or (result.run and result.run.failure):
            raise InstallError(failure.detail, "gpud doctor")

    yield Step(f"the image {job.image}", image, failed=failed)
    if not execution.later:
        alone = ("flock", "--no-fork", "--wait", GPU_S, lock)
        yield Step("n-body in a container", partial(perform, Task.RUN, *alone), failed=failed)
    if not execution.later and results[-1].run and (figure := results[-1].run.figure):
        speed = f"{figure.flops_per_second / 1e12:.3g} Tflop/s"
        execution.console.say(f"A container computes on {figure.gpu_name}: {speed} (n-body)")


def apt_key(armoured: bytes, fingerprint: str) -> bytes:
    """Return what is written into a keyring. Errors: ``InstallError`` for another key, or more."""
    block = ARMOUR.fullmatch(armoured[: LARGEST + 1].replace(b"\r\n", b"\n"))
    keys, binary = [], b""
    if block is not None and len(armoured) <= LARGEST:
        try:
            binary = base64.b64decode(block[1].replace(b"\n", b""), validate=True)
            keys = [_fingerprint(body) for tag, body in _packets(binary) if tag == PUBLIC_KEY]
        except (ValueError, IndexError):
            keys = []
    if keys != [fingerprint.lower()]:
        raise InstallError(f"this is not the key {fingerprint} alone, but: {keys or 'no key'}", "")
    return binary


def _fingerprint(body: bytes) -> str:
    """Return that of a key of version 4. Source: RFC 9580, section 5.5.4.2."""
    return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest()  # noqa: S324


def _packets(binary: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and body of each packet. Source: RFC 9580, section 4.2.

    Errors: ``ValueError`` and ``IndexError`` for what is cut off or has no length.
    """
    rest = io.BytesIO(binary)
    while header := rest.read(1):
        first = header[0]
        if first & 64:
            tag, size = first & 63, rest.read(1)[0]
            if size in PARTIAL:
                raise ValueError(size)
            if size > PARTIAL[-1]:
                size = int.from_bytes(rest.read(4), "big")
            elif size >= 192:  # noqa: PLR2004  # two octets
                size = (size - 192 << 8) + rest.read(1)[0] + 192
        else:
            tag, wide = first >> 2 & 15, 1 << (first & 3)
            size = int.from_bytes(rest.read(wide), "big")
        body = rest.read(size)
        if len(body) != size or not first & 128:
            raise ValueError(size)
        yield tag, body


def _agreed(question: str) -> bool:
    """Ask, on a terminal only; Ctrl-D is no."""
    if not (os.isatty(0) and os.isatty(1)):
        return False
    try:
        return input(f"  {question} [y/N] ").startswith(("y", "Y"))
    except EOFError:
        print()
        return False
