"""Ten states of one machine, each the snapshot that the events of such a day fold into."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from msgspec import structs

from gpud.agent.alerts import wording
from gpud.agent.regression.detector import Alarm, ChangeKind, StreamStanding
from gpud.agent.state.snapshot import Snapshot
from gpud.agent.telemetry.answers import Answer
from gpud.core import advice, alerts
from gpud.core.advice import Platform
from gpud.core.alerts import SLOWDOWN, Alert, Cause, SinkState
from gpud.core.health import Level
from gpud.core.sample import (
    Backend,
    Buckets,
    Failure,
    Inventory,
    Reading,
    Reason,
    RunReport,
    Sample,
    Skip,
    Unit,
)
from gpud.core.stats import LATENCY_BOUNDS_S
from gpud.core.streams import StreamKey
from gpud.document.machine import ChangeReport, StoreSize
from gpud.words import cause_words
from tests import snapshots, standings
from tests.browser import past
from tests.browser.past import LEVELS
from tests.events import (
    Event,
    alerts_changed,
    changed,
    evaluated,
    folded,
    health_set,
    inventory_taken,
    made,
    probes_listed,
    root_read,
    run_finished,
    run_skipped,
    sink_delivered,
    source_answered,
    store_measured,
)
from tests.histories import DAY_S

if TYPE_CHECKING:
    from gpud.core.report import RootReport

WALL_S, MONO_S = snapshots.NOW.wall_s, snapshots.NOW.mono_s
DEVICE = replace(snapshots.DEVICE, name="NVIDIA GeForce RTX 4070 Laptop GPU")
HOSTILE: Final = '<img src=x onerror=alert(1)>"\x1b[31m\u202e</script><script>alert(2)</script>'
LIBRARY: Final = "/usr/lib/wsl/lib/libcuda.so.1"
assert snapshots.ROOT.containers is not None
assert snapshots.ROOT.containers.run is not None
assert snapshots.ROOT.containers.run.figure is not None
RUNNING: Final = structs.replace(
    snapshots.ROOT,
    started_s=WALL_S - 6 * 86400,
    written_s=WALL_S,
    kernel_log=None,
    containers=structs.replace(
        snapshots.ROOT.containers,
        failures={},
        skips={},
        last_success_s=WALL_S - 900,
        run=structs.replace(
            snapshots.ROOT.containers.run,
            figure=structs.replace(snapshots.ROOT.containers.run.figure, gpu_name=DEVICE.name),
        ),
    ),
)
WORDS: Final = {
    "fine": "Fine",
    "degraded": "Degraded",
    "regressed": "Slower",
    "drifting": "Slower",
    "hot": "Degraded",
    "gpu_gone": "Failed",
    "no_nvml": "Degraded",
    "docker_loop": "Failed",
    "no_gpu": "Fine",
    "no_data": "Starting",
}
"""What the page calls each."""
NAMES: Final = tuple(WORDS)
HOT_S: Final = 1.2 * 3600
"""For so long the hot GPU has not been measured."""


def begun(started_s: float = WALL_S - 5 * 86400) -> Snapshot:
    return made(
        version="0.1.0",
        started_s=started_s,
        platform={"wsl": "2", "kernel": "6.6.87.2-microsoft-standard-WSL2", "distro": "Debian 12"},
    )


def launches(device_name: str, slower: float = 1.0) -> RunReport:
    """Three modes, two of them with a distribution that has a tail."""
    counts = [0] * (len(LATENCY_BOUNDS_S) + 1)
    counts[9:18] = [3, 20, 96, 52, 17, 6, 3, 2, 1]
    low = Buckets(tuple(counts), 200 * 12.4e-6)
    high = Buckets(tuple([0] * 3 + counts[:-3]), 200 * 24e-6)
    return RunReport(
        "launch",
        Backend.CUDA,
        replace(DEVICE, name=device_name),
        (
            snapshots.sample("submit", Unit.SECONDS, 12.4e-6 * slower, low),
            snapshots.sample("roundtrip", Unit.SECONDS, 24e-6, high),
            snapshots.sample("pipelined", Unit.SECONDS, 6.2e-6),
        ),
        duration_s=0.3,
        gpu_seconds=0.05,
        conditions={"driver_version": "572.16", "probe_version": 1},
    )


def measured(name: str = DEVICE.name, since_s: float = 0.0) -> tuple[Event, ...]:
    """What every round measures; the GPU's last was so long ago."""
    device = replace(DEVICE, name=name)

    def ran(probe: str, *samples: Sample, ago_s: float = 600) -> Event:
        cpu = probe == "cpu_call"
        report = RunReport(
            probe,
            Backend.CPU if cpu else Backend.CUDA,
            None if cpu else device,
            samples,
            duration_s=1.0,
        )
        gpu = None if cpu else DEVICE.uuid
        old_s = 0.0 if cpu else since_s
        return run_finished(report, gpu, WALL_S - ago_s - old_s, MONO_S - 10 - old_s)

    crossed = snapshots.sample("crossover", Unit.ELEMENTS, 256.0**2)
    return (
        run_finished(launches(name), DEVICE.uuid, WALL_S - 20 - since_s, MONO_S - 10 - since_s),
        *(
            ran(probe, *(snapshots.sample(mode, unit, level) for mode, (level, unit) in of.items()))
            for probe, of in LEVELS.items()
            if probe in {"copy", "triad", "matmul", "tensor"}
        ),
        ran("nbody", snapshots.sample("nbody", Unit.FLOPS_PER_SECOND, 2e13)),
        ran("crossover", crossed),
        ran("cpu_call", snapshots.sample("call", Unit.SECONDS, 4e-7), ago_s=20),
    )


def readings(name: str) -> tuple[Reading, ...]:
    """What NVML tells of a card that is well."""
    calm: dict[str, float | str] = {
        "name": name,
        "throttle_reasons": "none",
        "processes": 2.0,
        "remapped_rows_failed": 0.0,
    }
    return tuple(
        replace(each, value=calm.get(each.field, each.value))
        for each in snapshots.READINGS
        if each.field not in {"xids", "xid_last"}
    )


def fine(name: str = DEVICE.name) -> Snapshot:
    """Everything works, and the driver was replaced nine days ago at no cost."""
    device = replace(DEVICE, name=name)
    standing = {
        key: replace(
            each, open=(), level=LEVELS[key.probe][key.mode][0], slowdown=1.004, verdict=None
        )
        for key, each in usual_streams().items()
    }
    driver = ChangeReport("driver_version", "566.36", "572.16", WALL_S - 9.25 * 86400, "boot")
    return folded(
        begun(),
        probes_listed(snapshots.SPECS, {}, WALL_S - 600),
        inventory_taken(Inventory((device,), "12.8", LIBRARY), WALL_S - 600),
        *measured(name),
        source_answered(Answer("nvml", 5, WALL_S, MONO_S, readings(name), duration_s=0.02), WALL_S),
        source_answered(Answer("dxg", 1, WALL_S, MONO_S, snapshots.EXPOSED), WALL_S),
        changed((driver,), WALL_S - 9.25 * 86400),
        root_read(RUNNING, None, WALL_S - 600),
        health_set("store", Level.OK, WALL_S - 600),
        health_set("http", Level.OK, WALL_S - 600),
        store_measured(StoreSize(98_304_000, 420_000, 1, 0, WALL_S - past.YEAR * 86400), WALL_S),
        sink_delivered("notice", SinkState(sent=2, last_success_s=WALL_S - 3600), WALL_S),
        evaluated(standing, WALL_S, units()),
    )


def usual_streams() -> dict[StreamKey, StreamStanding]:
    """The five streams of ``standings``, and the other metrics of the first screen."""
    made = standings.streams(DEVICE.uuid, WALL_S)
    calm = made[standings.key(DEVICE.uuid, "triad")]
    others = {
        StreamKey(DEVICE.uuid, probe, mode): replace(calm, level=level, verdict=None)
        for probe, of in LEVELS.items()
        for mode, (level, _) in of.items()
        if probe in {"launch", "copy", "matmul", "tensor"}
    }
    return others | made


def units() -> dict[StreamKey, Unit]:
    return {key: LEVELS[key.probe][key.mode][1] for key in usual_streams()}


def degraded() -> Snapshot:
    """Somebody plays, so much is left out, and the disk is slow to answer."""
    return folded(
        fine(),
        health_set(
            "store",
            Level.DEGRADED,
            WALL_S - 300,
            reason="slow",
            detail="the disk took 4.2 s to write",
            fix="look at what else writes there",
        ),
        run_skipped("triad", Skip.GPU_BUSY, WALL_S - 60, DEVICE.uuid, starving=True),
    )


def regressed() -> Snapshot:
    """The new driver made submissions slower."""
    since_s = WALL_S - past.SINCE_DAYS[past.NEW] * DAY_S
    return slower(snapshots.SLOWER, since_s, ChangeKind.DRIVER)


def drifting() -> Snapshot:
    """Submissions became slower little by little while the GPU's clocks were held down by heat."""
    since_s = WALL_S - past.DRIFT_DAYS[0] * DAY_S
    hotter = Cause("throttle", "by nothing", "by thermal", "61 -> 84 degrees C")
    alert = structs.replace(
        snapshots.SLOWER,
        name=SLOWDOWN,
        labels={"kind": "drift", "uuid": DEVICE.uuid},
        summary="submission latency +12 % (12.4 -> 13.9 µs) since 2023-11-08 22:15 UTC, little by "
        f"little, driver 572.16 on GPU 0 ({DEVICE.name}); {cause_words(hotter)}",
        causes=(hotter,),
    )
    return slower(alert, since_s, ChangeKind.DRIFT)


def slower(alert: Alert, since_s: float, kind: ChangeKind) -> Snapshot:
    """Submissions take 12 % longer since then, as the alert says."""
    at_s = since_s + 1800
    before, _ = LEVELS["launch"]["submit"]

    def dated(alarm: Alarm) -> Alarm:
        after = before * past.SLOWER
        return replace(alarm, kind=kind, since_s=since_s, at_s=at_s, before=before, after=after)

    streams = {
        key: replace(
            each,
            level=LEVELS[key.probe][key.mode][0] * (past.SLOWER if each.open else 1.0),
            open=tuple(map(dated, each.open)),
        )
        for key, each in usual_streams().items()
    }
    evidence = tuple(
        structs.replace(
            each, stream=structs.replace(each.stream, gpu=DEVICE.uuid), since_s=since_s, kind=kind
        )
        for each in alert.evidence
    )
    fix = wording.fix(alert.causes, Platform.WSL2, alert.fingerprint[: alerts.SHORT])
    alert = structs.replace(alert, evidence=evidence, starts_s=at_s, updated_s=at_s, fix=fix)
    judged = evaluated(streams, WALL_S, units())
    slow = launches(DEVICE.name, past.SLOWER)
    ran = run_finished(slow, DEVICE.uuid, WALL_S - 20, MONO_S - 10)
    return folded(fine(), ran, judged, alerts_changed((alert,), WALL_S))


def hot() -> Snapshot:
    """A game keeps the GPU busy and hot: its clocks are held down, and no probe runs."""
    warm: dict[str, float | str] = {
        "temperature_celsius": 88.0,
        "power_watts": 112.0,
        "clock_sm_hertz": 1.5e9,
        "utilization_gpu_ratio": 0.97,
        "throttle_reasons": "thermal",
    }
    read = tuple(
        replace(each, value=warm.get(each.field, each.value)) for each in readings(DEVICE.name)
    )
    skipped = tuple(
        run_skipped(probe, Skip.GPU_HOT, WALL_S - 3600, DEVICE.uuid, starving=True)
        for probe in 12 * list(LEVELS)
        if probe in {"launch", "copy", "triad", "matmul", "tensor", "nbody"}
    )
    return folded(
        fine(),
        *measured(since_s=HOT_S),
        source_answered(Answer("nvml", 5, WALL_S, MONO_S, read), WALL_S),
        *skipped,
    )


def no_gpu() -> Snapshot:
    """Windows offers this distribution no GPU; Docker and the CPU are watched all the same."""
    failure = Failure(Reason.LIBRARY_MISSING, "libcuda.so.1 is nowhere")
    absent = (Reading(None, "exposed", "no", "dxg"),)
    call, unit = LEVELS["cpu_call"]["call"]
    report = RunReport(
        "cpu_call", Backend.CPU, None, (snapshots.sample("call", unit, call),), duration_s=1.0
    )
    return folded(
        begun(),
        probes_listed(snapshots.SPECS, {}, WALL_S - 600),
        inventory_taken(Inventory((), failure=failure), WALL_S - 60),
        run_finished(report, None, WALL_S - 20, MONO_S - 10),
        source_answered(Answer("dxg", 1, WALL_S, MONO_S, absent), WALL_S),
        root_read(structs.replace(RUNNING, containers=None), None, WALL_S),
        health_set("store", Level.OK, WALL_S - 600),
        health_set("http", Level.OK, WALL_S - 600),
    )


def gpu_gone() -> Snapshot:
    """The GPU was there a minute ago, and CUDA offers it no more."""
    none = Inventory((), "12.8", LIBRARY)
    gone = Answer("nvml", 5, WALL_S, MONO_S, reason="gpu_lost", detail="NVML: GPU is lost")
    return folded(fine(), inventory_taken(none, WALL_S - 60), source_answered(gone, WALL_S - 60))


def no_nvml() -> Snapshot:
    """NVML is not where it should be; CUDA works all the same."""
    missing = Answer(
        "nvml",
        5,
        WALL_S,
        MONO_S,
        reason="library_missing",
        detail="libnvidia-ml.so.1: cannot open shared object file",
        fix=advice.words(advice.Situation.LIBRARY_MISSING, Platform.WSL2),
    )
    named = (Reading(0, "name", DEVICE.name, "cuda"), Reading(0, "uuid", DEVICE.uuid, "cuda"))
    cuda = Answer("cuda", 2, WALL_S, MONO_S, named)
    return folded(fine(), source_answered(cuda, WALL_S - 60), source_answered(missing, WALL_S - 60))


def docker_loop() -> Snapshot:
    """dockerd ends as soon as it has begun, and is left alone for a while."""
    return folded(fine(), root_read(looping(), None, WALL_S - 1500))


def looping() -> RootReport:
    assert RUNNING.dockerd is not None
    held = structs.replace(
        RUNNING.dockerd,
        state="held",
        up=False,
        process=None,
        ping_s=None,
        reason="start_failed",
        detail='failed to start daemon: invalid key in /etc/docker/daemon.json: "dns-serch"',
        fix="mend /etc/docker/daemon.json, then sudo gpud restart",
        restarts={"start_failed": 9},
    )
    return structs.replace(RUNNING, dockerd=held)


def no_data() -> Snapshot:
    """A minute after the first start: probes are known, and none has ended."""
    return folded(
        begun(WALL_S - 30),
        probes_listed(snapshots.SPECS, {}, WALL_S - 29),
        health_set("store", Level.OK, WALL_S - 29),
    )


def snapshot(name: str) -> Snapshot:
    """Give a state by its name."""
    made: Snapshot = globals()[name]()
    return made
