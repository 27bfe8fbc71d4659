"""A program that uses the GPU as its owner would, and gpud's agent beside it, in turns.

The program multiplies matrices without end, by cuBLAS where there is one. A day of gpud's schedule
is compressed into ten minutes, so that what it costs can be seen; the target is for its usual pace.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import venv
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import IO, TYPE_CHECKING, Any

from .machine import ROOT
from .processes import FIRST_S, REFERENCE_S, Refused, late, wsl

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .contexts import Contexts
    from .prepared import Prepared, Study

DAY_S, SMALL_S, LARGE_S, WSL_S = 86400.0, 60.0, 900.0, 600.0
"""What gpud does in a day: small and large probes, and in WSL2 rounds of both."""
SLICES = 20
TARGET = 0.005
START_LIMIT_S = 120.0
STEADY_S = 1.0  # what a slice does not count, after the agent has come or gone
METRIC = re.compile(r"^(gpud_\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')
COUNTED = {
    (RUNS := "gpud_probe_runs_total"): "probe",
    "gpud_probe_skips_total": "reason",
    "gpud_probe_flagged_runs_total": "flag",
    (GPU_SECONDS := "gpud_own_gpu_seconds_total"): "",
}
PEAK = "gpud_own_vram_peak_bytes"
T_QUANTILES = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179),
    *(2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093),
)
"""Student's t, 97.5 %, for 1 to 19 degrees of freedom."""

now_s = time.monotonic


class Workload:
    """The program that multiplies; ``start`` and ``stop`` it as often as you like."""

    def __init__(self, command: Sequence[str], contexts: Contexts) -> None:
        self._command = command
        self._contexts = contexts
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread()
        self._begun = threading.Event()
        self._counts: list[tuple[float, int]] = []
        self.kernel = ""

    def start(self) -> None:
        """Start it, and wait until it multiplies. ``Errors: Refused`` with its words, ``Hung``."""
        pipe = subprocess.PIPE
        self._counts = []
        self._begun.clear()
        self._contexts.add()
        process = subprocess.Popen(
            self._command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )
        assert process.stdout is not None  # noqa: S101  # a pipe was asked for
        self._process = process
        self._thread = threading.Thread(target=self._read, args=(process.stdout,), daemon=True)
        self._thread.start()
        if not self._begun.wait(FIRST_S):
            self._process = None
            raise late(process, "the workload", FIRST_S)
        if not self._counts:
            self.stop()
            raise Refused("the workload ended at once")

    def stop(self) -> None:
        """Let it end by itself. ``Errors: Refused`` where its last product was wrong, ``Hung``."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None  # noqa: S101
        assert process.stderr is not None  # noqa: S101
        process.stdin.close()
        self._thread.join(REFERENCE_S)
        if self._thread.is_alive():
            self._process = None
            raise late(process, "the workload", REFERENCE_S)
        words = process.stderr.read().strip()
        process.wait()
        self._process = None  # not before: whoever is interrupted here stops it again
        with process:
            pass  # closes the pipes
        if process.returncode:
            raise Refused(f"the workload ended with {process.returncode}: {words[-2000:]}")

    def rate(self, first_s: float, last_s: float) -> float:
        """Give the products a second in a stretch of the monotonic clock.

        Errors: ``Refused`` where it has not worked then.
        """
        counts = [(at_s, count) for at_s, count in self._counts if first_s <= at_s <= last_s]
        if len(counts) < 2 or counts[-1][0] <= counts[0][0]:  # noqa: PLR2004  # two ends
            raise Refused("the workload stood still in a slice")
        return (counts[-1][1] - counts[0][1]) / (counts[-1][0] - counts[0][0])

    def _read(self, lines: IO[str]) -> None:
        self.kernel = lines.readline().strip()
        for line in lines:
            at_ns, count = line.split()
            self._counts.append((int(at_ns) * 1e-9, int(count)))
            self._begun.set()
        self._begun.set()


@contextlib.contextmanager
def prepared(there: Prepared, seed: int) -> Iterator[Workload]:
    """Size the program as gpud sizes its product, 20 ms at most; it is stopped in the end.

    Errors: ``Refused``.
    """
    run = there.child.run(there.specs["matmul"], there.uuid, seed)
    if run.failure:
        raise Refused(f"no size for the workload: {run.failure}")
    program = replace(there.own, cublas=there.cublas)
    options = ("--loop", "--only", "matmul", "--matmul", str(run.conditions["n"]))
    workload = Workload(program.command(there.uuid, *options), there.own.contexts)
    try:
        yield workload
    except SystemExit:
        with contextlib.suppress(Refused):  # who interrupts the check wants no more of its parts
            workload.stop()
        raise
    finally:
        workload.stop()


class Agent:
    """gpud's agent from this checkout, alone, in a home of its own."""

    def __init__(
        self, python: Path, settings: dict[str, dict[str, Any]], contexts: Contexts
    ) -> None:
        self._python, self._settings, self._contexts = python, settings, contexts
        self._address = ""
        self._home = self._console = Path(os.devnull)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, home: Path) -> None:
        """Start it, and wait until it has used the GPU. ``Errors: Refused`` with its words."""
        self._home, self._console = home, home / "console"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._address = f"127.0.0.1:{free.getsockname()[1]}"
        sections = {**self._settings, "http": {"listen": self._address}}
        config = home / "etc" / "gpud" / "gpud.toml"
        config.parent.mkdir(parents=True)
        lines = []
        for name, values in sections.items():
            lines.append(f"[{name}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        config.write_text("\n".join(lines) + "\n", encoding="utf-8")
        command = [str(self._python), "-I", "-m", "gpud.agent", "--home", str(home)]
        with self._console.open("wb") as console:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                cwd="/",
                start_new_session=True,
            )
        self.worked({})

    def worked(self, since: Mapping[str, float]) -> dict[str, float]:
        """Wait until it has used the GPU since it was counted; what it has done since.

        Errors: ``Refused`` where it does not.
        """
        until = now_s() + START_LIMIT_S
        while True:
            ended = self._process is None or self._process.poll() is not None
            counted = self.counted()
            done = {
                name: value if name == PEAK else value - since.get(name, 0.0)
                for name, value in counted.items()
            }
            if done.get(GPU_SECONDS, 0.0) > 0:
                return done
            if ended or now_s() > until:
                words = self._console.read_text(errors="replace").strip()[-2000:]
                raise Refused(f"gpud's agent does not use the GPU: {json.dumps(done)} {words}")
            time.sleep(0.05)

    def counted(self) -> dict[str, float]:
        """Read its counters; empty while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{self._address}/metrics", timeout=10) as answer:
                return counters(answer.read().decode())
        except (OSError, urllib.error.URLError):
            return {}

    def stop(self) -> None:
        """Ask it to end; it waits for what its child does on the GPU."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None  # not before: whoever is interrupted here stops it again
            with contextlib.suppress(OSError, ValueError):
                count = json.loads((self._home / "var/lib/gpud/contexts.json").read_bytes())
                self._contexts.add(count["contexts"])


def counters(text: str) -> dict[str, float]:
    """Add up the counters that say what gpud did, and by which reason or flag, and the peak."""
    found: dict[str, float] = {}
    for name, labels, value in METRIC.findall(text):
        if name == PEAK:
            found[name] = float(value)
        elif name in COUNTED:
            label = dict(LABEL.findall(labels)).get(COUNTED[name], "")
            key = f"{name} {label}".strip()
            found[key] = found.get(key, 0.0) + float(value)
    return found


@dataclass(frozen=True, slots=True)
class Effect:
    """How much slower a program is, as a share of its rate, and the 95 % interval."""

    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Compare it with the target, which must lie outside the interval."""
        if self.high <= TARGET:
            return "held"
        return "missed" if self.low > TARGET else "not decided"


def effect(pairs: Sequence[tuple[float, float]]) -> Effect:
    """Compare rates with and without gpud, slice by slice. At least two pairs."""
    losses = [1 - beside / alone for beside, alone in pairs]
    t = T_QUANTILES[min(len(losses) - 1, len(T_QUANTILES)) - 1]
    half = t * stdev(losses) / math.sqrt(len(losses))
    return Effect(fmean(losses), fmean(losses) - half, fmean(losses) + half)


def pace(
    did: Mapping[str, float], specs: Mapping[str, dict[str, Any]], seconds: float, *, wsl: bool
) -> float:
    """Return how many times as many probes gpud ran on the GPU as it usually does in that time."""
    small_s, large_s = intervals_s(wsl=wsl)
    usual = done = 0.0
    for name, spec in specs.items():
        usual += seconds / ((small_s if spec["pace"] == "small" else large_s) * spec["every"])
        done += did.get(f"{RUNS} {name}", 0.0)
    return done / usual


def intervals_s(*, wsl: bool) -> tuple[float, float]:
    """Return the usual seconds between two runs of a small and of a large probe."""
    return (WSL_S, WSL_S) if wsl else (SMALL_S, LARGE_S)


def measured(study: Study) -> dict[str, Any]:
    """Run the workload in slices with and without gpud. ``Errors: Refused``, saying why not."""
    there, slice_s = study.there, study.seconds / SLICES
    settings = compressed(there.child.library, study.seconds, wsl=wsl())
    agent = Agent(interpreter(study.folder), settings, there.own.contexts)
    slices: list[dict[str, Any]] = []
    rates: dict[bool, list[float]] = {True: [], False: []}
    with prepared(there, study.seed) as workload:
        workload.start()
        try:
            for number in range(SLICES):
                beside = number % 4 in {0, 3}  # with, without, without, with: a drift cancels out
                study.say(f"slice {number + 1} of {SLICES}, {'with' if beside else 'without'} gpud")
                if beside:
                    agent.start(study.folder / f"agent-{number}")
                time.sleep(STEADY_S)
                first_s = now_s()
                before = agent.counted() if beside else {}
                time.sleep(slice_s)
                done = agent.worked(before) if beside else {}
                last_s = now_s()
                agent.stop()
                rates[beside].append(workload.rate(first_s, last_s))
                clocks = study.clocks.between(first_s, last_s)
                row = {"gpud": beside, "rate": rates[beside][-1], "clocks": clocks, "did": done}
                slices.append(row | {"seconds": last_s - first_s})
        finally:
            agent.stop()
    seen = effect(list(zip(rates[True], rates[False], strict=True)))
    did = summed(slices)
    seconds = sum(each["seconds"] for each in slices if each["gpud"])
    times = pace(did, there.specs, seconds, wsl=wsl())
    usual = Effect(seen.mean / times, seen.low / times, seen.high / times)
    return {
        "kernel": workload.kernel,
        "schedule": settings["schedule"],
        "slice_s": slice_s,
        "seen": asdict(seen),
        "pace": times,
        "effect": asdict(usual) | {"target": TARGET, "verdict": usual.verdict},
        "gpud": did,
        "slices": slices,
    }


def summed(slices: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Add up what gpud did in all slices; of the memory the most, and what was in use beside it."""
    done: dict[str, float] = {}
    memory: dict[bool, float] = {}
    for each in slices:
        for name, value in each["did"].items():
            before = done.get(name, 0.0)
            done[name] = max(before, value) if name == PEAK else before + value
        used = each["clocks"].get("memory_mib")
        if used is not None:
            memory[each["gpud"]] = max(memory.get(each["gpud"], 0.0), used)
    if len(memory) == 2:  # noqa: PLR2004  # with and without
        done["memory_mib beside the workload"] = memory[True] - memory[False]
    return done


def compressed(library: str, seconds: float, *, wsl: bool) -> dict[str, dict[str, Any]]:
    """Give the settings of an agent that does in ``seconds`` what it does in a day.

    It runs its probes beside the workload too, where a person's agent would wait: a GPU that never
    rests would be left alone, and the slices would measure nothing.
    """
    factor = DAY_S / seconds
    small_s, large_s = intervals_s(wsl=wsl)
    schedule = {"small_interval_s": small_s / factor, "large_interval_s": large_s / factor}
    return {
        "dockerd": {"policy": "off"},
        "containers": {"probe": False},
        "cuda": {"library": library},
        "gate": {"busy_ratio": 1.0},
        "schedule": {name: max(value, 0.2) for name, value in schedule.items()},
    }


def interpreter(folder: Path) -> Path:
    """Make an interpreter that knows this checkout and the packages at hand, for the agent.

    Its children are started with -I and see no PYTHONPATH. Errors: ``Refused`` where packages
    that the agent needs are not there.
    """
    place = folder / "python"
    venv.create(place, symlinks=True)
    python = place / "bin" / "python"
    (site,) = place.glob("lib/python*/site-packages")
    known = [f"import sys; sys.pycache_prefix = {str(folder / 'bytecode')!r}", str(ROOT)]
    known += [entry for entry in sys.path if entry.endswith("-packages")]
    (site / "checkout.pth").write_text("\n".join(known) + "\n", encoding="utf-8")
    command = [str(python), "-I", "-c", "import gpud.agent.compose"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    if ended.returncode:
        last = ended.stderr.strip().splitlines()[-1:] or ["it does not start"]
        raise Refused(
            f"gpud's agent needs its packages: {last[0]}; pip install --target "
            "DIR/site-packages -r deploy/requirements.txt, and PYTHONPATH=DIR/site-packages"
        )
    return python
