"""Every recorded machine through the whole program: what it exports, says and advises there.

``NAME.txt`` is a scrape in which what differs from run to run is masked. ``NAME.verdict.txt`` is
what a person reads, ``gpud status`` and the lines of ``gpud doctor`` about the machine; it is
reviewed by hand. ``--update-golden`` writes both.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.captures.replay import load, names, replayed
from tests.e2e.program import QUICK, Program, only, program
from tests.kmsg import Kernel
from tests.known_issues.frames import BOOT, HEALTHY
from tests.known_issues.frames import LINUX as LINUX_LOG
from tests.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Mapping

GOLDEN = Path(__file__).resolve().parent.parent / "golden/machines"
AT_ONCE = 4
ONE_AT_A_TIME = threading.Lock()
SETTLED_S = 4.0
"""While nothing is known of a machine, what has not changed for so long is what it says."""

QUIET: dict[str, dict[str, Any]] = {
    "nvml": {"library": ""},
    "cuda": {"library": ""},
    "probes": only("event"),
    "gate": {"quiet_hours": ["00:00-24:00"]},
    "schedule": {**QUICK["schedule"], "small_interval_s": 86400, "large_interval_s": 86400},
}
"""The one probe is never let through: for it CUDA is asked which GPUs there are, once."""

CHECKS = ("wsl", "systemd", "interop", "dxg", "libcuda", "driver", "telemetry")
"""Of the doctor: those about the machine. The others look at the one the test runs on."""
MASKED = re.compile(
    r"^(gpud_(?:\w+_timestamp_seconds|(?:start_)?time_seconds|\w*duration_seconds|"
    r"children_spawned_total|telemetry_failures_total|telemetry_source_failures_total|"
    r"\w+_ping_seconds)(?:\{.*\})?) .*$",
    re.MULTILINE,
)
LATER = re.compile(r"^(?:# \w+ )?gpud_store_.*\n", re.MULTILINE)
"""Measured some seconds after the start, and nothing about a machine."""
OWN_LABELS = re.compile(r'(?<=[{,])(version|python|hostname|machine_id)="[^"]*"')
MOMENTS = re.compile(
    r"\d+ s ago|(?<=\()\d+ (?:s|min)(?=\))|\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?"
    r"|(?<=^gpud )[\d.]+",
    re.MULTILINE,
)
COST = re.compile(r"(?<=^What gpud takes: ).+?,\s+(?=page)", re.MULTILINE | re.DOTALL)
TROUBLE = re.compile(r"exception|traceback|job_failed", re.IGNORECASE)

WSL2_LOG = (*BOOT, *HEALTHY, *BOOT[:3])
"""The warning is kernel 6.18's; a machine with an older one is none the worse for it here."""
VA_SPENT = "misc dxg: dxgk: dxgkio_reserve_gpu_va: Ioctl failed: -75"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it makes devices")


@dataclass(frozen=True, slots=True)
class Seen:
    """All that one machine said, masked; ``raw`` is the scrape itself."""

    scrape: str
    verdict: str
    later: str  # the scrape, after the verdict
    raw: str
    log: str


@pytest.fixture(scope="module")
def seen(request: pytest.FixtureRequest) -> Mapping[str, Seen]:
    """Run every machine that a test of this file is about, some side by side."""
    update = bool(request.config.getoption("--update-golden"))
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    wanted = {str(item.callspec.params["name"]) for item in items if item.path == request.path}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = {name: pool.submit(_looked_at, name, update=update) for name in sorted(wanted)}
        return {name: one.result() for name, one in found.items()}


@pytest.mark.parametrize("name", names())
def test_a_machine_exports_what_was_agreed(
    name: str, seen: Mapping[str, Seen], request: pytest.FixtureRequest
) -> None:
    path = GOLDEN / f"{name}.txt"
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(seen[name].scrape)
    assert seen[name].scrape == path.read_text()
    assert seen[name].later == seen[name].scrape


@pytest.mark.parametrize("name", names())
def test_a_person_reads_the_verdict_that_was_reviewed(
    name: str, seen: Mapping[str, Seen], request: pytest.FixtureRequest
) -> None:
    path = GOLDEN / f"{name}.verdict.txt"
    if request.config.getoption("--update-golden"):
        path.write_text(seen[name].verdict)
    # Where a line breaks depends on how long this machine's folder of temporary files is.
    assert seen[name].verdict.split() == path.read_text().split()


@pytest.mark.parametrize("name", names())
def test_nothing_goes_wrong_that_was_not_foreseen(name: str, seen: Mapping[str, Seen]) -> None:
    lines = [line for line in seen[name].log.splitlines() if TROUBLE.search(line)]
    assert not lines


@pytest.mark.parametrize("name", names())
def test_no_recorded_machine_shows_a_trace_of_a_known_fault(
    name: str, seen: Mapping[str, Seen]
) -> None:
    assert "gpud_kernel_log_readable 1.0" in seen[name].raw
    assert 'state="seen"' not in seen[name].raw
    assert "known_fault" not in seen[name].log


@pytest.mark.parametrize("name", ["wsl2-laptop-hybrid"])
def test_a_machine_whose_kernel_tells_of_a_fault_shows_it(name: str) -> None:
    faulty = _looked_at(name, VA_SPENT, awaited='state="seen"')
    assert re.findall(r'id="([^"]+)",state="seen"', faulty.raw) == ["wsl-41176-va-75"]
    assert VA_SPENT in faulty.verdict
    assert "wsl-41176-va-75" in faulty.verdict


class _Machine(Program):
    """A gpud whose machine is another one."""

    def gpud(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-I", "-m", "gpud", "--home", str(self.home), *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
            cwd="/",
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "TZ": "UTC"},
        )


def _looked_at(name: str, *more: str, update: bool = False, awaited: str = "") -> Seen:
    """Run a machine whose kernel has written what a healthy one's does, and ``more``.

    ``awaited`` is in its scrape once it has read that.
    """
    golden = GOLDEN / f"{name}.txt"
    known = None if more or update or not golden.exists() else golden.read_text()
    with program() as home:
        folder = home.home / "machine"
        folder.mkdir()
        with replayed(load(name), folder) as machine, closing(Kernel(machine.sysroot)) as kernel:
            for line in (*(WSL2_LOG if name.startswith("wsl2") else LINUX_LOG), *more):
                kernel.says(line, at_s=time.monotonic())
            running = _Machine(home.home, QUIET | machine.sections)
            running.sysroot = str(machine.sysroot)
            running.start()
            try:
                return _seen(running, known, awaited)
            finally:
                running.stop()


def _seen(running: _Machine, known: str | None, awaited: str) -> Seen:
    running.status_when(lambda d: {"cuda", "nvml"} <= set(d["health"]), "a first look")
    scrape = _masked(_settled(running, known, awaited))
    settled_s = time.time()
    until(lambda: _written_s(running) > settled_s, "a status file of after that")
    with ONE_AT_A_TIME:  # a doctor with half a core finds that checks do not answer
        verdict = _verdict(running)
    raw = _settled(running, scrape, awaited)
    return Seen(scrape, verdict, _masked(raw), raw, running.logs())


def _written_s(running: _Machine) -> float:
    """Tell when the file that status and doctor read was written; it follows a second behind."""
    written_s: float = json.loads((running.run_dir / "agent.json").read_bytes())["written_s"]
    return written_s


def _settled(running: _Machine, known: str | None, awaited: str) -> str:
    """Wait for the scrape that is known, or for one that stays as it is; give the last."""
    last: dict[str, Any] = {"masked": "", "since_s": time.monotonic()}

    def look() -> bool:
        last["raw"] = running.get("/metrics").decode()
        masked = _masked(last["raw"])
        if masked != last["masked"]:
            last.update(masked=masked, since_s=time.monotonic())
        stays = awaited in masked and time.monotonic() - last["since_s"] > SETTLED_S
        return stays if known is None else masked == known

    with suppress(AssertionError):  # whoever compares it shows the difference
        until(look, "the scrape", every_s=0.2)
    return str(last["raw"])


def _masked(scrape: str) -> str:
    """Mask what differs from run to run, and sort series: components speak in any order."""
    text = OWN_LABELS.sub(r'\1=""', MASKED.sub(r"\1 MASKED", LATER.sub("", scrape)))
    lines: list[str] = []
    for _, block in groupby(text.splitlines(), lambda line: line.startswith("#")):
        lines += sorted(block, key=lambda line: "" if line.startswith("#") else line)
    return "\n".join([*lines, ""])


def _verdict(running: _Machine) -> str:
    status = running.gpud("status")
    found = until(lambda: _checked(running), "a doctor whose checks all answer")
    lines = [
        f"$ gpud status   # exit code {status.returncode}",
        status.stdout.rstrip(),
        "",
        "$ gpud doctor",
    ]
    for check in found:
        lines.append(f"{check['verdict']:<8} {check['title']}: {check['evidence']}")
        if check["fix"]:
            lines.append(f"{'':<8} fix: {check['fix']}")
    text = "\n".join([*lines, ""])
    program = Path(sys.executable).parent / "gpud"
    for what, shown in (
        (f"{program} --home {running.home}", "gpud"),
        (running.sysroot, ""),
        (str(running.home), "HOME"),
        (str(running.port), "PORT"),
    ):
        text = text.replace(what, shown)
    return MOMENTS.sub("MASKED", COST.sub("MASKED, ", text))


def _checked(running: _Machine) -> list[dict[str, str]] | None:
    document = json.loads(running.gpud("doctor", "--json").stdout)
    found = [check for check in document["checks"] if check["name"] in CHECKS]
    return None if any("no answer within" in check["evidence"] for check in found) else found
