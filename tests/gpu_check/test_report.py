"""The table, the document and the page say the same, and nothing that they show can do harm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deploy.gpu_check import compare, report
from deploy.gpu_check.compare import Against, Round, Row
from deploy.gpu_check.processes import Figure, Run, failed
from deploy.gpu_check.sanitize import Checked

HOSTILE = "GPU `rm`|<b>\x1b[31m"
ROWS = (
    Row("launch", "submit", ("submit",), compare.LATENCY),
    Row("triad", "triad", ("triad",), compare.THROUGHPUT),
    Row("tensor", "tensor", ("tensor",), compare.THROUGHPUT),
    Row("tensor", "tensor", ("tensor_cublas",), compare.TENSOR_LIBRARY, Against.CUBLAS),
)
TABLE = """\
Mode                   gpud       Other        Ratio   Spread            Target                Verdict
launch.submit          2.02 µs    2 µs         1.0100  1.0100 to 1.0100  within 3% or 0.15 µs  held
triad.triad            3.85 TB/s  4 TB/s       0.9625  0.9500 to 0.9750  at least 97%          MISSED
tensor.tensor          -          1 flop/s     -       -                 at least 97%          NOT MEASURED
    gpud: gpud has no probe called \\x1b[31m
tensor.tensor, cuBLAS  -          800 Tflop/s  -       -                 at least 70%          NOT MEASURED
    gpud: gpud has no probe called \\x1b[31m"""  # noqa: E501  # as it is printed


def of(unit: str, **medians: float) -> Run:
    figures = {
        name: Figure(value, unit, value, value, 9, "v", settled=False)
        for name, value in medians.items()
    }
    clocks = {"sm_mhz": 2475.0, "watts": 180.5, "memory_mib": 900.0}
    return Run(figures, {}, None, {"array_bytes": 64, "settled": True}, clocks=clocks)


def result() -> report.Found:
    nothing = failed("gpud has no probe called \x1b[31m")
    rounds = []
    for triad in (3.8e12, 3.9e12):
        rounds += [
            Round("launch", of("seconds", submit=2.02e-6), of("seconds", submit=2e-6)),
            Round("triad", of("bytes_per_second", triad=triad), of("bytes_per_second", triad=4e12)),
            Round(
                "tensor",
                nothing,
                of("flops_per_second", tensor=1.0),
                best=of("flops_per_second", tensor=1.0, tensor_cublas=8e14),
            ),
        ]
    gpu: dict[str, Any] = {
        "name": HOSTILE,
        "compute_capability": "9.0",
        "sm_count": 132,
        "memory_total_bytes": 1 << 37,
    }
    machine = {"gpu": gpu, "kernel": "6.1", "python": "3.12", "cpu_count": 2, "commit": "abc"}
    facts = {
        "date": "2026-01-02T03:04:05+00:00",
        "command": ["deploy/gpu-check"],
        "machine": machine,
        "conditions": {"before": {"driver_version": "580", "clocks.sm": "345 MHz"}, "after": {}},
        "pairs": 2,
        "nvcc": "nvcc 13.0",
    }
    return report.Found(
        facts=facts,
        rows=[compare.judged(row, rounds, {}) for row in ROWS],
        rounds=rounds,
        nvbandwidth={"host_to_device": 5e10},
        tools_absent={"nvbandwidth": "not on PATH"},
        without_reference=["launch.first_launch"],
        sanitized=[
            Checked("memcheck", ran=True, clean=True, kernels=("gpud_triad",), dirty=(), said=""),
            Checked("racecheck", True, False, (), ("gpud_nbody",), "a race"),
            Checked("synccheck", False, False, (), (), "Device not supported"),
        ],
    )


def test_the_table_has_a_line_for_every_row_and_the_reason_below_it() -> None:
    assert report.table(result().rows) == TABLE


def test_the_page_says_in_words_what_the_table_says() -> None:
    page = report.page(result())
    assert "Targets: 1 held, 1 missed, 2 not measured; pairs: 2." in page
    assert (
        "- `triad.triad`: gpud 3.85 TB/s, C 4 TB/s (triad v); the ratio is 0.9625 (0.9500 to "
        "0.9750 in 2 pairs). Target at least 97%: missed." in page
    )
    assert "- memcheck: clean (gpud_triad)." in page
    assert "- racecheck: NOT CLEAN in gpud_nbody: a race" in page
    assert "- synccheck: could not run: Device not supported" in page
    assert "- nvbandwidth: not on PATH." in page
    clocks = "2475 SM MHz, 180.5 W"
    assert f"| 2 | triad | gpud | yes | {clocks} | no | {clocks} |" in page
    assert "| Clocks before | clocks.sm 345 MHz |" in page
    assert "| Clocks after | not told: nvidia-smi does not answer |" in page


def test_a_name_from_the_driver_does_no_harm_in_the_page() -> None:
    page = report.page(result())
    assert "\x1b" not in page
    assert "<b>" not in page
    assert "# GPU 'rm'\\|&lt;b>\\x1b[31m, 2026-01-02" in page


def test_the_document_keeps_every_raw_figure(tmp_path: Path) -> None:
    data, words = report.written(tmp_path / "new" / "folder", result())
    assert data.endswith("2026-01-02-gpu-rm-b-31m.json")
    document = json.loads(Path(data).read_text(encoding="utf-8"))
    assert document["schema_version"] == report.SCHEMA_VERSION
    assert [row["verdict"] for row in document["rows"]] == [
        *("held", "missed", "not measured", "not measured")
    ]
    assert [row["ratio"] for row in document["rows"]][:2] == pytest.approx([1.01, 0.9625])
    assert document["rows"][2]["ratio"] is None
    assert len(document["rounds"]) == 6
    assert document["rounds"][1]["ours"]["figures"]["triad"]["median"] == 3.8e12
    assert document["rounds"][1]["ours"]["conditions"]["array_bytes"] == 64
    assert document["sanitizer"][1]["dirty"] == ["gpud_nbody"]
    assert Path(words).read_text(encoding="utf-8") == report.page(result())
