"""What every probe takes of a GPU, counted by the driver: within what its specification states."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gpud import discovery
from gpud.child import probes
from gpud.core.sample import Backend, Pace, ProbeSpec, Reason
from tests.child.running import scripted

if TYPE_CHECKING:
    from pathlib import Path

SPECS: dict[str, ProbeSpec] = {
    name: module.SPEC
    for name, module in discovery.modules(probes, ("SPEC", "run"))[0].items()
    if module.SPEC.backend is Backend.CUDA
}
MIB = 1 << 20
GPUS = {
    "an old laptop's": {
        "device.0.sm_count": 5,
        "device.0.l2_bytes": MIB // 2,
        "device.0.total_mem": 2048 * MIB,
        "device.0.free_mem": 1200 * MIB,
        "flops_per_second": 4e11,
        "tensor_flops_per_second": 1.6e12,
        "fp64_flops_per_second": 1.25e10,
        "tf32_flops_per_second": 8e11,
        "bf16_flops_per_second": 1.6e12,
        "int8_operations_per_second": 3.2e12,
        "bytes_per_second": 2e10,
        "host_copy_bytes_per_second": 1.5e9,
        "pageable_h2d_bytes_per_second": 9e8,
        "pageable_d2h_bytes_per_second": 8e8,
        "pinned_limit": 40 * MIB,
    },
    "a data centre's": {
        "device.0.sm_count": 132,
        "device.0.cc_major": 9,
        "device.0.cc_minor": 0,
        "device.0.l2_bytes": 50 * MIB,
        "device.0.total_mem": 140_000 * MIB,
        "device.0.free_mem": 138_000 * MIB,
        "flops_per_second": 4e13,
        "tensor_flops_per_second": 6e14,
        "fp64_flops_per_second": 3e13,
        "tf32_flops_per_second": 3e14,
        "bf16_flops_per_second": 6e14,
        "int8_operations_per_second": 1.2e15,
        "bytes_per_second": 4e12,
        "host_copy_bytes_per_second": 5.5e10,
    },
    "one that a game has filled": {
        "device.0.sm_count": 46,
        "device.0.l2_bytes": 36 * MIB,
        "device.0.free_mem": 20 * MIB,
        "flops_per_second": 2e13,
        "fp64_flops_per_second": 3e11,
        "bytes_per_second": 4e11,
    },
}
WAKING = {"warmup_kernels": 60, "warmup_factor": 8}
"""An idle GPU runs at a fraction of its clocks. Small probes ask for less than it takes to wake."""
LONGEST_KERNEL_S = 0.05
"""What a person at the desk begins to notice."""
SAME = 0.05
OVERLAP = {"copy": 0.35}
"""Both ways at once is counted twice by a driver that counts each way, and once by the events."""
SLOW = {("copy", "a data centre's")}  # gigabytes, which the stand-in really copies
CASES = [
    pytest.param(probe, gpu, marks=pytest.mark.soak if (probe, gpu) in SLOW else ())
    for probe in sorted(SPECS)
    for gpu in GPUS
]


@pytest.fixture(autouse=True)
def _single_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The crossover's BLAS may use all cores; a machine that tests has others to do."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")


@pytest.mark.parametrize(("probe", "gpu"), CASES)
def test_a_run_keeps_within_its_stated_budgets(tmp_path: Path, probe: str, gpu: str) -> None:
    spec, facts = SPECS[probe], GPUS[gpu]
    if spec.pace is Pace.LARGE:
        facts = facts | WAKING
    ledger = tmp_path / "ledger"
    facts |= {key.replace(".0.", ".1."): value for key, value in facts.items()}  # of a peer
    script = "".join(f"{key} {value}\n" for key, value in facts.items())
    # Without a time line events see work alone, as the ledger does.
    script += f"time_line 0\nledger {ledger}"
    ended = scripted(tmp_path, probe, script, budget_s=spec.budget_s)
    assert ended.code == 0, ended
    report = ended.document
    lines: list[dict[str, Any]] = [json.loads(line) for line in ledger.read_text().splitlines()]
    used_s = sum(line["gpu_seconds"] for line in lines)
    assert used_s <= spec.gpu_budget_s
    overlap_s = OVERLAP.get(probe, 0.0) * used_s
    slack_s = 1e-3 * spec.gpu_budget_s
    assert used_s * (1 - SAME) - overlap_s - slack_s <= report["gpu_seconds"], used_s
    assert report["gpu_seconds"] <= used_s * (1 + SAME) + slack_s, used_s
    assert max(line["longest_kernel_s"] for line in lines) <= LONGEST_KERNEL_S
    for kind in ("vram", "pinned"):
        peak = max(line[f"{kind}_peak_bytes"] for line in lines)
        assert report[f"{kind}_peak_bytes"] == peak
        assert all(line[f"{kind}_left_bytes"] == 0 for line in lines)
    free = facts.get("device.0.free_mem", 0)
    assert report["vram_peak_bytes"] <= spec.vram_share * free
    assert report["duration_s"] < spec.budget_s


@pytest.mark.parametrize("probe", [name for name in SPECS if SPECS[name].pace is Pace.LARGE])
def test_a_card_that_is_full_is_the_reason_in_every_probes_words(
    tmp_path: Path, probe: str
) -> None:
    failure = scripted(tmp_path, probe, f"device.0.free_mem {32 << 10}").failure
    assert failure["reason"] == Reason.OUT_OF_MEMORY
    assert failure["detail"].startswith("32768 bytes of GPU memory are free, too few for ")
    assert failure["advice"].startswith("close programs that use GPU memory")
