"""Both sides as processes: gpud's child, and the reference program. Figures come back by name."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpud.core import wsl as traces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .contexts import Contexts

CHILD = Path(__file__).with_name("child.py")
FIRST_S = 100
"""What the first use of a GPU may take: nothing of the driver has been read from the disk yet."""
LONGEST_S = 900
REFERENCE_S = 250
"""Its own alarm ends the C program before; in WSL2 none is set."""
RATIO = 2
"""Of the budgets of a child's runs, to which its start is added; its own alarms come before."""
ENDS_S = 5.0


class Refused(Exception):  # noqa: N818  # reads as the fact it states
    """The machine cannot be checked, or the command line makes no sense: exit code 2."""


class Hung(Exception):  # noqa: N818  # as above
    """A process has not come back from the driver of WSL2: it is left alone and the check ends."""


def wsl() -> bool:
    """Whether the driver is that of WSL2."""
    return traces.is_wsl2(platform.release())


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of one run. Units: seconds, or work per second."""

    median: float
    unit: str
    minimum: float
    maximum: float
    n: int
    variant: str = ""  # which kernel or size it belongs to, where there is a choice
    settled: bool | None = None  # the clocks were up; None: that run says it of all its figures


@dataclass(frozen=True, slots=True)
class Run:
    """What one process brought: figures by name, what it could not offer, or why nothing."""

    figures: dict[str, Figure]
    missing: dict[str, str]
    failure: str | None
    conditions: dict[str, Any]
    verified: tuple[str, ...] = ()
    clocks: dict[str, float] = field(default_factory=dict)  # see ``clocks.py``


@dataclass(frozen=True, slots=True)
class Child:
    """gpud's side. ``library`` is a libcuda, or empty for the usual search."""

    contexts: Contexts
    library: str = ""

    def specs(self) -> list[dict[str, Any]]:
        """Give the specifications of the probes for CUDA. ``Errors: Refused``."""
        document = self._document("--list", "")
        return [spec for spec in document["probes"] if spec["backend"] == "cuda"]

    def inventory(self) -> dict[str, Any]:
        """List the GPUs, and the driver's file and version of CUDA.

        Errors: ``Refused`` with the reason and the advice where there is none.
        """
        job = {"cuda_library": self.library, "budget_s": FIRST_S, "alarm": not wsl()}
        document = self._document("--serve", json.dumps(job), (1 + RATIO) * FIRST_S)
        if failure := document.get("failure"):
            raise Refused(f"no GPU: {words(failure)}")
        return document

    def run(self, spec: dict[str, Any], uuid: str, seed: int, peer: str | None = None) -> Run:
        """Run one probe once. Errors: none; whatever happens is in the result."""
        return self.runs([(spec, seed)], uuid, peer)[0]

    def runs(
        self,
        jobs: Sequence[tuple[dict[str, Any], int]],
        uuid: str,
        peer: str | None = None,
        **environment: str,
    ) -> list[Run]:
        """Run probes one after the other in one context, each with its seed.

        ``peer``: the second GPU of those that copy between two.
        Errors: none; whatever happens is in the results.
        """
        lines = [
            json.dumps(
                {
                    "probe": spec["name"],
                    "gpu": uuid,
                    "peer": peer if spec["peer"] else None,
                    "cuda_library": self.library,
                    "budget_s": spec["budget_s"],
                    "seed": seed,
                    "alarm": not wsl(),
                }
            )
            for spec, seed in jobs
        ]
        limit_s = FIRST_S + RATIO * sum(spec["budget_s"] for spec, _ in jobs)
        self.contexts.add()
        try:
            documents = self._documents("--serve", "\n".join(lines), limit_s, environment)
        except Refused as error:
            return [failed(str(error))] * len(jobs)
        absent = [failed("gpud.child ended before this run")] * (len(jobs) - len(documents))
        return [child_run(document) for document in documents] + absent

    def _document(self, option: str, given: str, limit_s: float = FIRST_S) -> dict[str, Any]:
        return self._documents(option, given, limit_s, {})[0]

    @staticmethod
    def _documents(
        option: str, given: str, limit_s: float, environment: dict[str, str]
    ) -> list[dict[str, Any]]:
        command = [sys.executable, "-P", str(CHILD), option]
        ended = finished(command, given, os.environ | environment, limit_s)
        try:
            documents = [json.loads(line) for line in ended.stdout.splitlines()]
        except ValueError:
            documents = []
        if not documents:
            words = ended.stderr.strip()[-2000:]
            raise Refused(f"gpud.child {option} ended with {ended.returncode}: {words}")
        return documents


def child_run(document: dict[str, Any]) -> Run:
    """Read what gpud's child reports of one run."""
    if failure := document.get("failure"):
        return replace(failed(words(failure)), conditions=document["conditions"])
    return Run(
        figures={
            sample["mode"]: Figure(
                *(sample[name] for name in ("median", "unit", "minimum", "maximum", "n"))
            )
            for sample in document["samples"]
        },
        missing={gap["mode"]: f"{gap['reason']}: {gap['detail']}" for gap in document["missing"]},
        failure=None,
        conditions=document["conditions"] | {"gpu_seconds": document["gpu_seconds"]},
    )


@dataclass(frozen=True, slots=True)
class Reference:
    """The other side: the built program, its kernels, and the libraries it shall load."""

    program: Path
    modules: tuple[Path, ...]
    prefix: str
    contexts: Contexts
    library: str = ""
    cublas: str | None = None

    def command(self, uuid: str, *options: str) -> list[str]:
        """Give the command line for some options."""
        command = [str(self.program), "--prefix", self.prefix, "--gpu", uuid]
        if self.library:
            command += ["--library", self.library]
        if self.cublas:
            command += ["--cublas", self.cublas]
        for module in self.modules:
            command += ["--module", str(module)]
        return [*command, *(("--no-alarm",) if wsl() else ()), *options]

    def run(self, uuid: str, *options: str) -> Run:
        """Run it once. Errors: none; whatever happens is in the result."""
        self.contexts.add()
        ended = finished(self.command(uuid, *options), "", limit_s=REFERENCE_S)
        return reference_run(ended.returncode, ended.stdout, ended.stderr)


def reference_run(code: int, stdout: str, stderr: str) -> Run:
    """Read what the reference program said."""
    if code:
        how = f"ended with code {code}"
        if code < 0:
            how = (
                "did not end within its time"
                if -code == signal.SIGALRM
                else f"ended by signal {-code}"
            )
        said = "; ".join(line.strip() for line in stderr.splitlines() if line.strip())
        return failed(said[-2000:] or f"the reference program {how}")
    try:
        document = json.loads(stdout)
    except ValueError:
        return failed(f"the reference program said no JSON: {stdout[:200]!r}")
    return Run(
        figures={name: Figure(**figure) for name, figure in document["figures"].items()},
        missing=document["missing"],
        failure=None,
        conditions=document["device"],
        verified=tuple(document["verified"]),
    )


def failed(why: str) -> Run:
    """A run that brought nothing."""
    return Run({}, {}, why, {})


def words(failure: dict[str, Any]) -> str:
    """One failure of the child as a sentence."""
    advice = f" ({failure['advice']})" if failure.get("advice") else ""
    return f"{failure['reason']}: {failure['detail']}{advice}"


def finished(
    command: Sequence[str],
    given: str,
    environment: dict[str, str] | None = None,
    limit_s: float = LONGEST_S,
) -> subprocess.CompletedProcess[str]:
    """Run a process to its end.

    Ctrl-C does not reach it, and nobody ends it before ``limit_s``: it may have work on the GPU.
    Whoever interrupts the check waits until it has given back what it took.
    Errors: ``Refused`` where it cannot be started or has not ended by then, in WSL2 ``Hung``.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise Refused(f"{command[0]} cannot be started: {error.strerror}") from error
    try:
        stdout, stderr = process.communicate(given, timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise late(process, command[0], limit_s) from None
    except BaseException:
        try:
            process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise late(process, command[0], limit_s) from None
        raise
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def late(process: subprocess.Popen[str], name: str, limit_s: float) -> Refused | Hung:
    """Give the reason to end for a process over its limit, killed once where that does no harm."""
    words = f"{name} (process {process.pid}) did not end within {limit_s:g} s"
    if wsl():
        return Hung(
            f"{words} and was left alone: in WSL2 a signal to what hangs in the driver can cost "
            "the GPU until `wsl --shutdown` from Windows. Look whether it has ended before you "
            "use the GPU again"
        )
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(ENDS_S)
    return Refused(words)
