"""Machines as they are met: a fine one with two GPUs, and what happens to such machines."""

from __future__ import annotations

from dataclasses import replace

from gpud.agent.measure.breaker import Standing as Breaker
from gpud.agent.measure.breaker import State as BreakerState
from gpud.agent.regression.changes import MachineChange
from gpud.agent.regression.detector import (
    Alarm,
    ChangeKind,
    DriverVerdict,
    Effect,
    StreamStanding,
    VerdictState,
)
from gpud.agent.state.snapshot import Snapshot, StoreSize
from gpud.agent.telemetry.answers import Answer
from gpud.core.alerts import SLOWDOWN, Alert, Severity, SinkState
from gpud.core.health import Level
from gpud.core.report import ContainersReport, ProcessRef
from gpud.core.sample import (
    Device,
    Failure,
    Inventory,
    Reading,
    Reason,
    Skip,
    Unit,
)
from gpud.core.stream_key import StreamKey
from tests import snapshots
from tests.agent.serve.page.measured import BIG, MEDIANS, crossed, run, specs
from tests.events import (
    Event,
    alerts_changed,
    altered,
    breaker_changed,
    changed,
    child_spawned,
    evaluated,
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

NOW_S, NOW_MONO_S = snapshots.NOW.wall_s, snapshots.NOW.mono_s
STARTED_S = NOW_S - 86400.0
OLD, NEW = "572.16", "576.02"


def standing(level: float, slowdown: float, verdict: DriverVerdict | None = None) -> StreamStanding:
    return StreamStanding(
        seen=1440,
        judged=1380,
        refused={},
        set_aside={"busy": 60},
        last_judged_s=NOW_S - 30,
        level=level,
        slowdown=slowdown,
        slow_state_ratio=0.0,
        open=(),
        verdict=verdict,
    )


def judged(devices: tuple[Device, ...], state: VerdictState = VerdictState.NO_CHANGE) -> Event:
    verdict = DriverVerdict(state, OLD, NEW, NOW_S - 7200, 118, 1400, limit=0.034)
    streams, units = {}, {}
    for probe, (unit, modes) in MEDIANS.items():
        for place, (mode, median) in enumerate(modes.items()):
            for gpu in [None] if probe.startswith("cpu") else [one.uuid for one in devices]:
                key = StreamKey(gpu, probe, mode)
                said = verdict if gpu is not None else None
                streams[key] = standing(median, 1 + 0.002 * place, said)
                units[key] = unit
    return evaluated(streams, NOW_S, units)


def readings(device: Device, heat: float = 51.0) -> tuple[Reading, ...]:
    known: dict[str, float | str] = {
        **{
            field: value
            for field, value in snapshots.FIELDS.items()
            if type(value) in {float, str} and field not in {"xids", "xid_last"}
        },
        "name": device.name,
        "uuid": device.uuid,
        "pci_bus_id": f"0000{device.pci_bus_id}",
        "compute_capability": device.compute_capability,
        "driver_version": NEW,
        "nvml_version": "575.51",
        "memory_total_bytes": float(device.memory_total_bytes),
        "memory_used_bytes": 1.4 * (1 << 30),
        "temperature_celsius": heat,
        "power_watts": 23.6,
        "power_limit_watts": 115.0,
        "utilization_gpu_ratio": 0.04,
        "throttle_reasons": "idle",
        "xids": "none",
        "ecc_mode": "disabled",
    }
    machine = {"driver_version", "nvml_version", "cuda_version"}
    return tuple(
        Reading(None if field in machine else device.index, field, value, "nvml")
        for field, value in known.items()
        if device.index == 0 or field not in machine
    )


def answers(devices: tuple[Device, ...]) -> tuple[Event, ...]:
    told = tuple(one for device in devices for one in readings(device, 51.0 - 8 * device.index))
    at = (NOW_S - 4, NOW_MONO_S - 4)
    return (
        source_answered(Answer("dxg", 1, *at, snapshots.EXPOSED[:1], duration_s=2e-4), NOW_S - 4),
        source_answered(Answer("nvml", 5, *at, told, duration_s=0.011), NOW_S - 4),
    )


def started() -> Snapshot:
    """An agent in its first second: nothing has ended yet."""
    return made(
        version="0.1.0",
        started_s=NOW_S - 1,
        platform={"wsl": "2", "kernel": "6.6.87.2-microsoft-standard-WSL2", "distro": "Debian 12"},
    )


def root(
    containers: ContainersReport | None = snapshots.ROOT.containers, **dockerd: object
) -> Event:
    report = replace(snapshots.ROOT, containers=containers)
    said = replace(report.dockerd, restarts={}, version="27.5.1", **dockerd)  # type: ignore[arg-type]  # its fields
    return root_read(replace(report, dockerd=said, kernel_log=None), None, STARTED_S + 2)


def alone() -> Event:
    """Root of a machine on which no container can have a GPU."""
    return root(containers=None)


def after(snapshot: Snapshot, *events: Event) -> Snapshot:
    for event in events:
        snapshot = event(snapshot)
    return snapshot


def fine(*devices: Device) -> Snapshot:
    """A machine with these GPUs, or none, on which everything is well since yesterday."""
    at_s, at_mono_s = STARTED_S + 5, NOW_MONO_S - 20
    cuda = [probe for probe in MEDIANS if not probe.startswith("cpu")]
    none = Failure(Reason.NO_DEVICE, "there is no GPU")
    inventory = Inventory(devices, "12.9", "/usr/lib/wsl/lib/libcuda.so.1")
    exposed = Reading(None, "exposed", "yes" if devices else "no", "dxg")
    made = after(
        altered(started(), started_s=STARTED_S),
        probes_listed(specs(), {}, at_s),
        source_answered(Answer("dxg", 1, at_s, at_mono_s, (exposed,)), at_s),
        inventory_taken(inventory if devices else Inventory(failure=none), at_s),
        child_spawned(1716),
        root() if devices else alone(),
        health_set("store", Level.OK, at_s),
        health_set("http", Level.OK, at_s),
        *(run_finished(run(p, d), d.uuid, at_s, at_mono_s) for d in devices for p in cuda),
        *(run_finished(crossed(d), d.uuid, at_s, at_mono_s) for d in devices),
        *(run_finished(run(p, None), None, at_s, at_mono_s) for p in ("cpu_call", "cpu_matmul")),
        changed(
            (MachineChange("driver_version", OLD, NEW, NOW_S - 7200, "boot", 5),), NOW_S - 7200
        ),
        *(answers(devices) if devices else ()),
        judged(devices),
        store_measured(StoreSize(112 << 20, 51_840, 0, 0), NOW_S),
        sink_delivered("notice", SinkState(sent=3, last_success_s=NOW_S - 90_000), NOW_S),
    )
    return altered(made, gpu_seconds=14.2)


def slower(made: Snapshot, device: Device, *, acknowledged_s: float | None = None) -> Snapshot:
    """The new driver made every launch on a GPU 38 % slower."""
    effect = Effect(1.38, 1.352, 1.407)
    streams, evidence = {}, []
    for mode in ("submit", "roundtrip"):
        key, before = StreamKey(device.uuid, "launch", mode), MEDIANS["launch"][1][mode]
        alarm = Alarm(
            kind=ChangeKind.DRIVER,
            worse=True,
            seq=1500,
            at_s=NOW_S - 3600,
            since_seq=1400,
            since_s=NOW_S - 7200,
            effect=effect,
            before=before,
            after=1.38 * before,
            old_driver=OLD,
            new_driver=NEW,
            samples=118,
            reference=1400,
        )
        verdict = DriverVerdict(VerdictState.REGRESSED, OLD, NEW, NOW_S - 7200, 118, 1400, effect)
        streams[key] = replace(standing(1.38 * before, 1.38, verdict), open=(alarm,))
        evidence.append(
            replace(
                snapshots.SLOWER.evidence[0],
                stream=key,
                before=before,
                after=1.38 * before,
                slowdown=1.38,
                low=1.352,
                high=1.407,
                samples=118,
                reference=1400,
                since_s=NOW_S - 7200,
            )
        )
    alert = replace(
        snapshots.SLOWER,
        labels={"kind": "driver", "old": OLD, "new": NEW},
        summary=f"submission latency +38 % (12.4 -> 17.1 µs), launch round trip +38 % since driver "
        f"{OLD} -> {NEW} on GPU 0 ({device.name})",
        starts_s=NOW_S - 3600,
        evidence=tuple(evidence),
        causes=(replace(snapshots.SLOWER.causes[0], old=OLD, new=NEW),),
        fix=f"go back to driver {OLD} in Windows, or accept it: `gpud baseline accept`",
        acknowledged_s=acknowledged_s,
    )
    finished = run_finished(run("launch", device, 1.38), device.uuid, NOW_S - 20, NOW_MONO_S - 20)
    units = dict.fromkeys(streams, Unit.SECONDS)
    return after(made, finished, evaluated(streams, NOW_S, units), alerts_changed((alert,), NOW_S))


def gone(made: Snapshot, *left: Device) -> Snapshot:
    """A GPU fell off the bus."""
    return after(made, inventory_taken(Inventory(left, "12.9", "libcuda.so.1"), NOW_S - 600))


def without_nvml(made: Snapshot) -> Snapshot:
    reason, detail = "library_missing", "libnvidia-ml.so.1: cannot open shared object file"
    fix = "install the NVIDIA driver of Windows anew"
    said = Answer("nvml", 5, NOW_S - 4, NOW_MONO_S - 4, reason=reason, detail=detail, fix=fix)
    return after(made, source_answered(said, NOW_S - 4))


def stuck(made: Snapshot) -> Snapshot:
    """A probe hung, was ended, and does not go away."""
    standing = Breaker(
        BreakerState.STUCK,
        since_s=NOW_S - 900,
        hangs=1,
        process=ProcessRef(4711, 1),
        what="launch on GPU 0",
        detail="pid 4711 was ended and is still there: the kernel keeps it",
        fix="wsl --shutdown",
    )
    left = run_skipped("launch", Skip.STUCK, NOW_S - 60, BIG.uuid)
    return after(made, breaker_changed(standing, NOW_S - 900), left, left, left)


def on_battery(made: Snapshot) -> Snapshot:
    """The large probes wait for the charger."""
    left = [
        run_skipped(probe, Skip.ON_BATTERY, NOW_S - 60, BIG.uuid, starving=probe == "triad")
        for probe in ("copy", "triad", "matmul")
    ]
    return after(made, *left, *left)


def drifting(device: Device) -> Alert:
    """Slower under the same driver, and nobody knows why."""
    return replace(
        snapshots.SLOWER,
        name=SLOWDOWN,
        severity=Severity.CRITICAL,
        labels={"kind": "drift", "since": "2023-11-14T20:00Z", "uuid": device.uuid},
        summary="matrix product -40 % since 2023-11-14 20:00 UTC, little by little",
        causes=(),
        fix=None,
    )
