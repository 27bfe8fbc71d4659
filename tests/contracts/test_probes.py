"""Every probe in the folder: named after its file, within its budget, and documented."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from gpud import discovery
from gpud.child import probes
from gpud.core.sample import Backend, Pace, ProbeSpec, Reason, Unit
from tests.child.running import Ended, ask, run
from tests.child.sweep import A_SMALL_GPU
from tests.standins.build import build_libcuda

USABLE, REFUSED = discovery.modules(probes, ("SPEC", "run"))
SPECS: dict[str, ProbeSpec] = {name: module.SPEC for name, module in USABLE.items()}
DOCUMENT = Path(__file__).resolve().parents[2] / "docs/probes.md"
MARK = "<!-- probes -->"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    costs = "".join(f"{what}_ns 2000\n" for what in ("launch", "graph_launch", "event", "copy"))
    return build_libcuda(tmp_path_factory.mktemp("cuda"), f"devices 2\n{A_SMALL_GPU}{costs}")


@pytest.fixture(scope="module", params=sorted(SPECS))
def ran(request: pytest.FixtureRequest, library: Path) -> tuple[ProbeSpec, Ended]:
    spec = SPECS[request.param]
    return spec, run(spec.name, library, budget_s=spec.budget_s)


def test_no_probe_is_refused() -> None:
    assert REFUSED == {}
    assert set(SPECS) >= {"launch", "triad", "nbody", "copy", "cpu_call", "cpu_matmul"}


@pytest.mark.parametrize("name", sorted(SPECS))
def test_a_spec_is_named_after_its_file_and_has_a_budget(name: str) -> None:
    spec = SPECS[name]
    assert (spec.name, len(set(spec.modes))) == (name, len(spec.modes))
    assert 0 < spec.budget_s <= 30
    assert (spec.unit is Unit.SECONDS) == (spec.pace is Pace.SMALL)
    assert name.startswith("cpu_") == (spec.backend is Backend.CPU)


def test_the_listing_is_what_the_folder_holds() -> None:
    listed = ask("--list", b"").document
    assert listed["refused"] == {}
    reported = {
        spec["name"]: ProbeSpec(**{**spec, "modes": tuple(spec["modes"])})
        for spec in listed["probes"]
    }
    assert reported == SPECS


def test_every_mode_is_missing_or_has_figures_that_are_positive_finite_ordered_and_in_the_unit(
    ran: tuple[ProbeSpec, Ended],
) -> None:
    spec, ended = ran
    missing = [gap["mode"] for gap in ended.document["missing"]]
    assert sorted([*ended.samples, *missing]) == sorted(spec.modes)
    for mode, sample in ended.samples.items():
        assert sample["unit"] == spec.unit
        names = ("minimum", "p10", "median", "p90", "p99", "maximum")
        figures = [sample[name] for name in names if sample[name] is not None]
        assert figures == sorted(figures)
        assert sample["median"] > 0
        assert all(math.isfinite(figure) and figure >= 0 for figure in figures)
        assert sample["n"] >= 5 or mode in {"first_launch", "crossover"}
        buckets = sample["buckets"]
        assert buckets is None or sum(buckets["counts"]) == sample["n"]
    assert 0 < ended.document["duration_s"] < spec.budget_s
    assert ended.err == ""


def test_a_cpu_probe_never_looks_like_a_gpu(ran: tuple[ProbeSpec, Ended]) -> None:
    spec, ended = ran
    report = ended.document
    assert report["backend"] == spec.backend
    assert (report["device"] is None) == (spec.backend is Backend.CPU)
    assert (report["gpu_seconds"] == 0) or spec.backend is Backend.CUDA
    assert ("library" in report["conditions"]) == (spec.backend is Backend.CUDA)


def test_what_makes_figures_comparable_is_beside_them(ran: tuple[ProbeSpec, Ended]) -> None:
    spec, ended = ran
    conditions = ended.document["conditions"]
    assert conditions["probe_version"] == spec.version
    assert conditions["verified"] is True
    assert {"python", "kernel", "cpu_count", "load_1m"} <= set(conditions)


@pytest.mark.parametrize("name", sorted(SPECS))
def test_a_budget_that_is_too_small_is_the_reason_and_leaves_no_samples(
    library: Path, name: str
) -> None:
    failure = run(name, library, budget_s=0.001).failure
    assert failure["reason"] == Reason.BUDGET_EXCEEDED
    assert "0.001 s" in failure["detail"]
    assert failure["advice"]


def test_two_seeds_verify_different_data_and_both_pass(library: Path) -> None:
    for name, spec in SPECS.items():
        if spec.backend is Backend.CUDA:
            assert run(name, library, seed=987654321).samples


def schedule(spec: ProbeSpec) -> str:
    return spec.pace if spec.every == 1 else f"{spec.pace}, one round in {spec.every}"


def table(specs: dict[str, ProbeSpec]) -> str:
    lines = [
        "| Probe | On | Schedule | Unit | Modes | Budget | Version | Measures |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| `{spec.name}` | {spec.backend} | {schedule(spec)} | {spec.unit} "
        f"| {', '.join(spec.modes)} | {spec.budget_s:g} s | {spec.version} | {spec.summary} |"
        for _, spec in sorted(specs.items())
    ]
    return "\n".join(lines)


def test_the_document_holds_the_table_of_the_specs(request: pytest.FixtureRequest) -> None:
    before, held, after = DOCUMENT.read_text(encoding="utf-8").split(MARK)
    expected = f"\n{table(SPECS)}\n"
    if request.config.getoption("--update-golden"):
        DOCUMENT.write_text(MARK.join((before, expected, after)), encoding="utf-8")
        return
    assert held == expected, "pytest tests/contracts/test_probes.py --update-golden rewrites it"


@pytest.mark.parametrize("name", sorted(SPECS))
def test_the_document_describes_every_probe_and_every_mode(name: str) -> None:
    _, result, after = DOCUMENT.read_text(encoding="utf-8").partition(f"\n## {name}\n")
    assert result
    section = after.partition("\n## ")[0]
    for mode in SPECS[name].modes:
        assert f"`{mode}`" in section
    for point in ("**Method.**", "**Verified by.**", "**Proved.**", "**Wrong when.**"):
        assert point in section
