"""Two snapshots made by hand: everything known, and nothing known yet."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from gpud.agent.measure.breaker import State
from gpud.agent.measure.pace import Beat
from gpud.agent.serve.refusals import Refused
from gpud.agent.state.snapshot import PaceState, Snapshot
from gpud.agent.telemetry import fields as catalogue
from gpud.agent.telemetry.answers import Answer
from gpud.core.alerts import DRIVER_REGRESSION, Alert, Cause, Evidence, Severity, SinkState
from gpud.core.clock import Instant
from gpud.core.health import Level
from gpud.core.report import (
    AgentReport,
    ContainerFigure,
    ContainerRun,
    ContainersReport,
    DockerdReport,
    KernelLogReport,
    KernelTrouble,
    Owner,
    ProbeStage,
    ProcessRef,
    RootReport,
    ToolkitReport,
    ToolkitState,
)
from gpud.core.sample import (
    Absent,
    Backend,
    Buckets,
    Condition,
    Device,
    Failure,
    Flag,
    Inventory,
    Pace,
    Peak,
    Point,
    ProbeSpec,
    Reading,
    Reason,
    RunReport,
    Sample,
    Skip,
    Unit,
)
from gpud.core.stats import LATENCY_BOUNDS_S
from gpud.core.streams import StreamKey
from gpud.document.alerts import FaultReport
from gpud.document.machine import BreakerReport, ChangeReport, StoreSize
from tests import standings
from tests.events import (
    Event,
    alerts_changed,
    breaker_changed,
    certificate_read,
    changed,
    child_spawned,
    clock_jumped,
    evaluated,
    health_set,
    inventory_taken,
    made,
    probes_listed,
    program_started,
    root_read,
    run_finished,
    run_skipped,
    sink_delivered,
    source_answered,
    store_measured,
    turned_away,
)

NOW = Instant(wall_s=1_700_000_100.0, mono_s=100.0)

DEVICE = Device(
    index=0,
    uuid="GPU-00000000-0000-0000-0000-000000000001",
    name='RTX "4070"\n\x1b[31m',
    pci_bus_id="0000:01:00.0",
    compute_capability="8.9",
    sm_count=46,
    l2_bytes=36 << 20,
    memory_total_bytes=12 << 30,
)
SPECS = (
    ProbeSpec(
        "launch", Backend.CUDA, Pace.SMALL, Unit.SECONDS, ("submit", "roundtrip"), 10, "launches"
    ),
    ProbeSpec("triad", Backend.CUDA, Pace.LARGE, Unit.BYTES_PER_SECOND, ("triad",), 10, "memory"),
    ProbeSpec("nbody", Backend.CUDA, Pace.LARGE, Unit.FLOPS_PER_SECOND, ("nbody",), 10, "maths"),
    ProbeSpec("crossover", Backend.CUDA, Pace.LARGE, Unit.ELEMENTS, ("crossover",), 10, "sizes"),
    ProbeSpec("cpu_call", Backend.CPU, Pace.SMALL, Unit.SECONDS, ("call",), 5, "a call"),
)


def sample(mode: str, unit: Unit, median: float, buckets: Buckets | None = None) -> Sample:
    return Sample(
        mode=mode,
        unit=unit,
        n=100,
        median=median,
        p10=median * 0.9,
        p90=median * 1.1,
        p99=median * 1.5,
        minimum=median * 0.8,
        maximum=median * 2,
        buckets=buckets,
    )


TWO = (Peak(13e-6, 0.75), Peak(40e-6, 0.25))


def launches(median_s: float = 5e-6) -> RunReport:
    counts = [0] * (len(LATENCY_BOUNDS_S) + 1)
    counts[8] = 100
    return RunReport(
        "launch",
        Backend.CUDA,
        device=DEVICE,
        samples=(
            replace(
                sample("submit", Unit.SECONDS, median_s, Buckets(tuple(counts), 100 * median_s)),
                p99_net=median_s * 1.25,
            ),
            replace(sample("roundtrip", Unit.SECONDS, 3 * median_s), peaks=TWO),
            sample("pipelined", Unit.SECONDS, median_s / 2),
        ),
        conditions={"probe_version": 2},
        duration_s=0.3,
        gpu_seconds=0.05,
        vram_peak_bytes=1 << 20,
        pinned_peak_bytes=4096,
    )


CURVE = (Point(192, 1.5e-4, 2.2e-4), Point(256, 3.1e-4, 2.4e-4))


def measured(
    probe: str, unit: Unit, median: float, conditions: dict[str, Condition] | None = None
) -> RunReport:
    samples = (sample(probe, unit, median),)
    conditions = conditions or {}
    return RunReport(probe, Backend.CUDA, DEVICE, samples, duration_s=1.0, conditions=conditions)


FIELDS: dict[str, float | str | Absent] = {
    "name": DEVICE.name,
    "uuid": DEVICE.uuid,
    "pci_bus_id": "00000000:01:00.0",
    "vbios_version": "95.04.31.00.3B",
    "compute_capability": "8.9",
    "driver_version": "572.16",
    "nvml_version": "570.00",
    "cuda_version": "12.8",
    "memory_total_bytes": 12884901888.0,
    "memory_used_bytes": 1073741824.0,
    "memory_free_bytes": 11811160064.0,
    "memory_reserved_bytes": 268435456.0,
    "temperature_celsius": 48.0,
    "temperature_memory_celsius": 52.0,
    "temperature_slowdown_celsius": 90.0,
    "temperature_shutdown_celsius": 97.0,
    "power_watts": 31.5,
    "power_limit_watts": 200.0,
    "energy_joules_total": 12345.678,
    "clock_graphics_hertz": 2475e6,
    "clock_sm_hertz": 2475e6,
    "clock_memory_hertz": 10501e6,
    "clock_video_hertz": 2115e6,
    "clock_graphics_max_hertz": 3105e6,
    "clock_sm_max_hertz": 3105e6,
    "clock_memory_max_hertz": 10501e6,
    "clock_video_max_hertz": 2415e6,
    "pstate": 0.0,
    "utilization_gpu_ratio": 0.07,
    "utilization_memory_ratio": Absent.UNSUPPORTED,
    "utilization_encoder_ratio": 0.05,
    "utilization_decoder_ratio": 0.12,
    "throttle_reasons": "power_cap,thermal",
    "power_violation_seconds_total": 1.25,
    "thermal_violation_seconds_total": 0.5,
    "pcie_generation": 1.0,
    "pcie_generation_max": 4.0,
    "pcie_width": 8.0,
    "pcie_width_max": 16.0,
    "pcie_replays_total": 3.0,
    "pcie_sent_bytes_per_second": 2.5e6,
    "pcie_received_bytes_per_second": 1.5e6,
    "fan_ratio": 0.3,
    "ecc_mode": "enabled",
    "ecc_corrected_total": 2.0,
    "ecc_uncorrected_total": 0.0,
    "remapped_rows_correctable_total": 1.0,
    "remapped_rows_uncorrectable_total": 2.0,
    "remapped_rows_pending": 0.0,
    "remapped_rows_failed": 1.0,
    "mig_mode": "disabled",
    "processes": 4.0,
    "xids": "31:2,79:1",
    "xid_last": 79.0,
}
READINGS = tuple(
    Reading(None if catalogue.FIELDS[field].machine else 0, field, value, "nvml")
    for field, value in FIELDS.items()
)
EXPOSED = (
    Reading(None, "exposed", "yes", "dxg"),
    Reading(None, "driver_folder", "nvltwi.inf_amd64_08cf6d985207979a", "dxg"),
)

SLOWER = Alert(
    DRIVER_REGRESSION,
    Severity.WARNING,
    {"kind": "driver", "old": "566.36", "new": "572.16"},
    "submission latency +12 % (12.4 -> 13.9 µs) since driver 566.36 -> 572.16",
    "Slower since driver 566.36 -> 572.16:",
    starts_s=1_700_000_060.0,
    updated_s=1_700_000_060.0,
    evidence=(
        Evidence(
            StreamKey("GPU-1", "launch", "submit", 2),
            Unit.SECONDS,
            "driver",
            before=12.4e-6,
            after=13.9e-6,
            slowdown=1.121,
            low=1.102,
            high=1.139,
            samples=25,
            reference=1000,
            since_s=1_700_000_000.0,
            seq=1024,
        ),
    ),
    causes=(Cause("driver", "566.36", "572.16"),),
    fix="go back to driver 566.36",
)

ROOT = RootReport(
    gpud_version="0.1.0",
    process=ProcessRef(10, 1000),
    privileged=True,
    boot_id="boot",
    started_s=1_700_000_000.0,
    written_s=1_700_000_099.0,
    beat_s=99.0,
    dockerd=DockerdReport(
        state="running",
        policy="auto",
        up=True,
        owner=Owner.GPUD,
        process=ProcessRef(11, 1100),
        version="20.10.24",
        ping_s=0.0012,
        last_start_s=0.157,
        restarts={"killed": 1},
    ),
    agent=AgentReport(state="running", process=ProcessRef(12, 1200), user="gpud", restarts=2),
    containers=ContainersReport(
        stage=ProbeStage.WAITING,
        image="nvcr.io/nvidia/k8s/cuda-sample:nbody",
        image_present=True,
        toolkit=ToolkitReport(ToolkitState.RUNTIME),
        run=ContainerRun(
            finished_s=1_700_000_050.0,
            finished_mono_s=50.0,
            duration_s=3.0,
            figure=ContainerFigure(1.6e13, 8e11, 47104, 50, 0, DEVICE.name, "8.9"),
        ),
        last_success_s=1_700_000_050.0,
        gpu_index=0,
        runs=3,
        failures={"toolkit_missing": 2},
        skips={"image_absent": 1},
    ),
    kernel_log=KernelLogReport(
        counts={
            "noise": 21,
            "message_lost": 1,
            "not_resident": 0,
            "field_spanning": 0,
            "unknown": 2,
        },
        last=KernelTrouble(
            "message_lost", "dxgvmb_send_create_process: create_process failed -75", 1_700_000_080.0
        ),
        recent={"message_lost": 1},
    ),
)


FAULTS = (
    FaultReport(
        "wsl-1",
        "seen",
        "hang",
        "GPU work hangs",
        "wsl --update",
        "https://example.org/wsl-1",
        "several_reports",
        "dxgk: 3 times \x1b[31m-75",
        1_700_000_080.0,
        3,
        alarm=True,
    ),
    FaultReport(
        "wsl-2",
        "applies",
        "slow",
        "Copies are slow",
        None,
        "https://example.org/wsl-2",
        "one_report",
    ),
)


def bare() -> Snapshot:
    """What an agent knows in its first moment."""
    return made(version="0.1.0", started_s=1_700_000_000.0)


def full() -> Snapshot:
    """Everything this release can know, with one probe failing and one field withheld."""
    snapshot = made(
        version="0.1.0",
        started_s=1_700_000_000.0,
        platform={"wsl": "2", "kernel": "6.6.87.2-microsoft-standard-WSL2", "distro": "Debian 12"},
        identity={"machine_id": "0123456789abcdef0123456789abcdef", "hostname": "laptop"},
        known_faults=FAULTS,
    )
    broken = Failure(Reason.VERIFICATION_FAILED, "8 of 8 bodies are wrong")
    wall_s, mono_s = NOW.wall_s - 10, NOW.mono_s - 10
    call = sample("call", Unit.SECONDS, 4e-7)

    def ran(report: RunReport, *flags: Flag) -> Event:
        gpu = None if report.backend is Backend.CPU else DEVICE.uuid
        return run_finished(report, gpu, wall_s, mono_s, flags)

    events: tuple[Event, ...] = (
        probes_listed(SPECS, {}, wall_s),
        inventory_taken(Inventory((DEVICE,), "12.8", "/usr/lib/wsl/lib/libcuda.so.1"), wall_s),
        child_spawned(),
        run_skipped("launch", Skip.RESUMED, wall_s, DEVICE.uuid),
        ran(launches(), Flag.BUSY, Flag.LOW),
        ran(measured("triad", Unit.BYTES_PER_SECOND, 4.6e11, {"after.ac": False})),
        run_finished(
            measured("nbody", Unit.FLOPS_PER_SECOND, 2e13, {"sm_clock_hertz": 2.415e9}),
            DEVICE.uuid,
            wall_s - 5,
            mono_s - 5,
        ),
        ran(replace(measured("crossover", Unit.ELEMENTS, 65536.0), curve=CURVE)),
        ran(RunReport("cpu_call", Backend.CPU, None, (call,), conditions={"after.ac": True})),
        ran(RunReport("copy", Backend.CUDA, DEVICE, failure=broken)),
        run_skipped("triad", Skip.CHILD_RUNNING, wall_s),
        breaker_changed(
            BreakerReport(
                State.OPEN,
                since_s=wall_s,
                hangs=2,
                retry_s=wall_s + 600,
                what="launch on GPU-1",
                detail="ended by its own alarm",
                fix="wsl --shutdown",
            ),
            wall_s,
        ),
        run_skipped("triad", Skip.GPU_BUSY, wall_s, DEVICE.uuid, starving=True),
        clock_jumped(3600.0, wall_s, mono_s),  # what was read before it would be stale
        source_answered(Answer("nvml", 5, wall_s, mono_s, READINGS, duration_s=0.02), wall_s),
        source_answered(Answer("dxg", 1, wall_s, mono_s, EXPOSED), wall_s),
        program_started("nvidia_smi_exe"),
        source_answered(
            Answer("nvidia_smi_exe", 4, wall_s, mono_s, duration_s=10.0, reason="hung"), wall_s
        ),
        changed((ChangeReport("driver_version", "566.36", "572.16", wall_s, "boot"),), wall_s),
        root_read(ROOT, None, wall_s),
        health_set("store", Level.OK, wall_s),
        alerts_changed((SLOWER,), wall_s),
        store_measured(StoreSize(98_304, 42, 1, 0), wall_s),
        certificate_read(wall_s + 86_400.0),
        turned_away({Refused.UNAUTHORIZED: 3, Refused.TOO_SLOW: 1}),
        sink_delivered("notice", SinkState(sent=2, last_success_s=wall_s), wall_s),
        sink_delivered(
            "webhook", SinkState(failed=1, reason="refused", detail="x", fix="y"), wall_s
        ),
        evaluated(standings.streams(DEVICE.uuid, NOW.wall_s), wall_s, standings.units(DEVICE.uuid)),
    )
    for event in events:
        snapshot = event(snapshot)
    return structs.replace(snapshot, pace=PaceState(Beat(), 42, 250))
