"""Page and screen say the same: each thing is made once and written by both."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from gpud import words
from gpud.child import probes
from gpud.discovery import modules
from gpud.document.status import read
from gpud.show import figures, gpus, model
from gpud.show.view import View
from tests.show import documents
from tests.show.documents import (
    NOW_S,
    UUID,
    full,
    launch,
    machine,
    screen,
    telemetry,
    two_gpus,
    unwell,
)

if TYPE_CHECKING:
    from collections.abc import Callable

Document = dict[str, Any]


def with_clock(made: Document) -> Document:
    run = {"probe": "nbody", "gpu": 0, "backend": "cuda", "last_success_s": NOW_S}
    made["probes"] = [*made["probes"], run | {"conditions": {"sm_clock_hertz": 1.905e9}}]
    return made


def changes(*kinds: tuple[str, str | None, str, float]) -> Document:
    names = ("kind", "old", "new", "at_s")
    return {"changes": [dict(zip(names, (*k[:3], NOW_S + k[3]), strict=True)) for k in kinds]}


def slower(**alert: Any) -> Document:
    made = machine("regressed")
    made["alerts"][0] |= alert
    return made


def at(after_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(NOW_S + after_s))


def measured_every(interval_s: float) -> Document:
    """Return a machine whose GPU was measured three minutes ago."""
    made = machine() | {"contexts": {"used": 9, "budget": 250, "interval_s": interval_s}}
    for run in made["probes"]:
        run["last_success_s"] = NOW_S - 180
    return made


def fault(name: str, **fields: Any) -> Document:
    """Return a known fault as the document has it: of the versions alone unless it says more."""
    return {
        "id": name,
        "state": "applies",
        "effect": "no_gpu",
        "title": f"title of {name}",
        "fix": f"fix of {name}",
        "source": f"https://example.org/{name}",
        "confidence": "several_reports",
    } | fields


SEEN = {"state": "seen", "evidence": "dxgk: \x1b[31mioctl <b>-75", "at_s": NOW_S - 60, "count": 3}


def faulty(*faults: Document) -> Document:
    return machine(known_faults=list(faults))


NEW_DRIVER = (
    ("boot_id", "a", "b", 0.0),
    ("driver_version", "572.16", "576.02", 1.0),
    ("cuda_version", "12.8", "12.9", 1.0),
    ("driver_folder", "nv_1", "nv_2", 20.0),
)
TENSOR = {"mode": "tensor", "reason": "unsupported", "detail": "compute capability 7.5"}
ON_BATTERY = {"probe": "triad", "gpu": 0, "reason": "on_battery", "count": 2}
PAGE = "http://127.0.0.1:9945"
NO_GPU: Document = {"gpus": {}, "cuda": None, "expected": {}}
NO_ROOT = {"level": 2, "detail": "root.json is 40 s old", "fix": "gpud up"}
NOT_ASKED = {"readings": [{"field": "pcie_width", "gpu": 0, "absent": "not_asked"}]}
TOOLKIT = {"level": 0, "reason": "toolkit_not_installed", "detail": "not here"}
LOST = {"detail": "lost", "fix": "x"}
EITHER: dict[str, tuple[Callable[[], Document], list[str]]] = {
    "slower driver": (
        slower,
        [
            *("submission latency +12 %", "go back to driver 566.36"),
            *("12 % slower since driver 572.16", "566.36 → 572.16", "12 % slower (10.2 to 13.9 %)"),
            *("seen it: gpud alerts ack", "1 slower, 1 learning"),
        ],
    ),
    "alert without a cause": (
        lambda: slower(evidence=[], description="line one\nline two", causes=[]),
        ["submission latency +12 %", "warning"],
    ),
    "dockerd": (
        lambda: machine(root={"dockerd": {"restarts": {"killed": 1}, "suspect_sockets": 2}}),
        ["dockerd running", "owner gpud", "1 (1 killed)", "2 ignored, see docs/dockerd.md"],
    ),
    "dockerd that dies": (
        lambda: machine(
            root={
                "dockerd": {"up": False, "state": "crashloop", "reason": "x"}
                | {"detail": "exit 1", "fix": "look"}
            }
        ),
        ["crashloop", "exit 1", "To do: look"],
    ),
    "dockerd of another": (
        lambda: machine(root={"dockerd": {"owner": "docker_desktop"}}),
        ["owner docker desktop"],
    ),
    "no root": (
        lambda: machine(root=None, health={"root": NO_ROOT}),
        ["not known: root.json is 40 s old", "To do: gpud up"],
    ),
    "GPU": (
        full,
        [
            *('RTX "4070"\\x0a\\x1b[31m', "memory 1.0 of 12.0 GiB", "use 7 %", "power 32 of 200 W"),
            *("temperature 48 °C", "SM clock 2475 of 3105 MHz", "performance state P0"),
            "slowed by power cap, thermal",
            "driver 572.16 (WSL side 570.00), CUDA 12.8; values from NVML",
            "GPU work is tried again at",
        ],
    ),
    "two GPUs": (two_gpus, ["GPU 0: NVIDIA GeForce RTX 4070", "GPU 1: NVIDIA RTX A2000 12GB"]),
    "GPU that is gone": (
        lambda: machine("gpu_gone"),
        ["CUDA no longer offers GPU 0", "gone since", f"gpud gpus forget {UUID}"],
    ),
    "no GPU": (lambda: machine() | NO_GPU | {"telemetry": {}}, ["No GPU is known yet."]),
    "grace of a boot": (
        lambda: machine(gpu_from_s=NOW_S + 42),
        [f"GPU work begins at {at(42)}", ": WSL has just started"],
    ),
    "rounds of the GPU that are far apart": (
        lambda: measured_every(600.0),
        [f"Measured every 10 min: last {at(-180)}", f"next {at(420)}"],
    ),
    "contexts that are getting few": (
        lambda: machine() | {"contexts": {"used": 126, "budget": 250, "interval_s": 2520.0}},
        ["126 of 250 GPU contexts of this boot are used: the GPU is measured every 42 min"],
    ),
    "contexts that are used up": (
        lambda: machine() | {"contexts": {"used": 251, "budget": 250, "interval_s": 600.0}},
        ["The 250 GPU contexts of this boot are used up: the GPU is measured by `gpud probe`"],
    ),
    "idle GPU": (lambda: telemetry(throttle_reasons="idle"), ["slowed by nothing (idle)"]),
    "unknown clocks": (lambda: telemetry(name="RTX"), ["no source tells: memory, use, power"]),
    "two humps and flags": (
        full,
        ["13 µs (75 %) / 40 µs (25 %)", "not compared: GPU in use, slow clocks"],
    ),
    "failed run": (full, ["the last run failed: 8 of 8 bodies are wrong"]),
    "missing mode": (
        lambda: launch(machine(), missing=[TENSOR]),
        ["not on offer: tensor: compute capability 7.5"],
    ),
    "note": (
        lambda: launch(machine(), conditions={"note": "uses mma and not wgmma"}),
        ["uses mma and not wgmma"],
    ),
    "skips": (lambda: machine(put_off=[ON_BATTERY]), ["triad GPU 0 on battery 2"]),
    "skips until a moment": (
        lambda: machine(put_off=[ON_BATTERY | {"next_s": NOW_S + 600}]),
        ["triad GPU 0 on battery: next at"],
    ),
    "health": (
        lambda: unwell(cuda={"detail": "gone", "fix": "mend it"}, nvml={"reason": "too_new"}),
        ["cuda", "gone", "mend it", "nvml", "too new", "devices, discovery, dockerd, http"],
    ),
    "part that is not set up": (
        lambda: unwell(containers=TOOLKIT),
        ["containers", "toolkit not installed", "not here"],
    ),
    "one cause": (lambda: unwell(cuda=LOST, nvml=LOST), ["cuda, nvml"]),
    "new driver": (
        lambda: machine(**changes(*NEW_DRIVER)),
        ["the machine was started anew, driver 572.16 -> 576.02, CUDA 12.8 -> 12.9, driver fol"],
    ),
    "GPUs counted": (
        lambda: machine(**changes(("gpus", "GPU-1", "GPU-1,GPU-2", 0.0))),
        ["GPUs 1 -> 2"],
    ),
    "SM clock without NVML": (
        lambda: with_clock(telemetry(power_watts=None)),
        ["SM clock 1905 MHz (read by nbody)"],
    ),
    "known fault with a call that failed": (
        lambda: faulty(fault("wsl-1", **SEEN, alarm=True, confidence="one_report")),
        [
            "wsl-1: title of wsl-1",
            "seen with a failed or stalled GPU call",
            "others report: no GPU",
            "3 times",
            "Evidence: dxgk: \\x1b[31mioctl <b>-75",
            "To do: fix of wsl-1",
            "reported once, https://example.org/wsl-1",
        ],
    ),
    "known fault without a way around": (
        lambda: faulty(fault("wsl-1", **SEEN, fix=None, confidence="maintainer_confirmed")),
        ["To do: none is known", "confirmed by its maintainers, https://example.org/wsl-1"],
    ),
    "known faults of the versions": (
        lambda: faulty(fault("wsl-1"), fault("wsl-2", state="reported")),
        ["advice: 2 of these versions, not seen here; gpud doctor says more"],
    ),
    "cost": (
        lambda: machine(url=PAGE),
        ["GPU time 0.05 s, ", " % of one GPU", "page http://127.0.0.1:9945/"],
    ),
}
"""What is so, and words that page and screen have to say of it."""
NEITHER: dict[str, tuple[Callable[[], Document], str]] = {
    "first sight": (lambda: machine(**changes(("cuda_version", None, "12.8", 0.0))), "-> 12.8"),
    "SM clock by NVML": (lambda: with_clock(full()), "read by nbody"),
    "acknowledged": (lambda: slower(acknowledged_s=1.0), "seen it"),
    "ended": (lambda: slower(firing=False), "seen it"),
    "choice of the person": (lambda: telemetry(name="RTX") | {"telemetry": NOT_ASKED}, "PCIe"),
    "contexts enough": (
        lambda: machine(contexts={"used": 125, "budget": 250, "interval_s": 600.0}),
        "contexts",
    ),
    "rounds of the GPU that are near": (lambda: measured_every(60.0), "Measured every"),
    "grace that is over": (lambda: machine(gpu_from_s=1.0), "GPU work begins"),
    "GPU that nobody has": (
        lambda: (
            machine(put_off=[ON_BATTERY | {"reason": "no_gpu"}])
            | {"health": {"cuda": {"level": 0, "reason": "no_gpu"}}}
        ),
        "CUDA offers no GPU",
    ),
    "page of somebody else": (
        lambda: unwell(http={"reason": "address_in_use"}) | {"url": PAGE},
        "http://127",
    ),
}
"""What is so, and words that neither page nor screen may say then."""


def shown(made: Document) -> dict[str, str]:
    lines = " ".join(" ".join(screen(made)).split()).replace("To do ", "To do: ")
    texts = {"page": documents.read(made).root.words, "screen": lines}
    return {where: re.sub("[()]", "", words) for where, words in texts.items()}


@pytest.mark.parametrize("case", EITHER)
def test_page_and_screen_say_it(case: str) -> None:
    make, words = EITHER[case]
    for where, text in shown(make()).items():
        for expected in words:
            assert re.sub("[()]", "", expected) in text, where


@pytest.mark.parametrize("case", NEITHER)
def test_neither_page_nor_screen_says_it(case: str) -> None:
    make, words = NEITHER[case]
    for where, text in shown(make()).items():
        assert words not in text, where


def test_screen_of_a_machine_on_battery_says_when_the_gpu_is_measured_next() -> None:
    made = machine(put_off=[ON_BATTERY | {"next_s": NOW_S + 600}])
    next_run = f"on battery: small probes at {at(600)}, large ones when plugged in"
    for drawn in (screen(made), screen(made, View(80, 24))):
        assert next_run in " ".join(" ".join(drawn).split())
    assert "small probes at" not in " ".join(screen(machine(put_off=[ON_BATTERY])))


def test_known_faults_begin_with_what_alarms_and_end_with_what_only_applies() -> None:
    made = faulty(
        fault("wsl-1"), fault("wsl-2", **SEEN), fault("wsl-3", **SEEN, alarm=True), fault("wsl-4")
    )
    shown = documents.read(made).root.words
    places = [
        shown.index(words)
        for words in ("wsl-3: title", "wsl-2: title", "2 of these versions", "wsl-1", "wsl-4")
    ]
    assert places == sorted(places)
    drawn = "\n".join(screen(made))
    assert (
        drawn.index("wsl-3: title")
        < drawn.index("wsl-2: title")
        < drawn.index("2 of these versions")
    )
    assert drawn.index("2 of these versions") < drawn.index("Docker")
    assert "wsl-1" not in drawn
    brief = " ".join(screen(made, View(80, 24)))
    assert "wsl-3: title" in brief
    assert "and 1 more: gpud doctor" in brief
    assert "wsl-2" not in brief


def test_known_faults_of_the_versions_alone_are_below_the_figures_of_a_machine_that_is_well() -> (
    None
):
    made = faulty(fault("wsl-1"))
    whole = screen(made)
    (line,) = set(whole) - set(screen(machine()))
    assert line.startswith("Known faults: advice: 1 of these versions")
    assert whole.index(line) > next(n for n, words in enumerate(whole) if "Docker" in words)
    assert screen(made, View(80, 24)) == screen(machine(), View(80, 24))


def test_one_slowdown_has_one_number_everywhere() -> None:
    made = machine("regressed")
    for stream in made["streams"]:
        stream["slowdown"] = 1.3  # the latest samples say something else
    for view in (View(), View(80, 24)):
        lines = "\n".join(screen(made, view))
        assert "12 % slower" in lines
        assert "30 % slower since" not in lines
    rows = documents.read(made).rows("figures")
    assert rows[0][3] == "+12 %"
    assert rows[0][-1] == "12 % slower since driver 572.16"


@pytest.mark.parametrize("reason", sorted(gpus.REASONS.keys() - {gpus.NO_SOURCE}))
def test_missing_value_is_named_with_its_reason_and_never_nought(reason: str) -> None:
    made = telemetry(**{field: None for _, field, _ in gpus.CARD})
    for reading in made["telemetry"]["readings"]:
        reading["absent"] = reason
    drawn = " ".join(" ".join(screen(made)).split())
    names = ", ".join(name for name, _, _ in gpus.CARD)
    assert f"Without a value: {gpus.REASONS[reason]}: {names}" in drawn
    assert not re.search(r"\b(use|power|temperature|clock|memory) 0", drawn)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"utilization_gpu_ratio": 0.0}, "use 0 %"),
        ({"power_watts": 38.0}, "power 38 W"),
        ({"power_limit_watts": 38.0}, "power unknown of 38 W"),
        ({"driver_version": "595.71", "nvml_version": "595.45"}, "595.71 (WSL side 595.45), CUDA"),
        ({"driver_version": "572.16", "nvml_version": "572.16"}, "driver 572.16, CUDA 12.8"),
        ({"nvml_version": "570.86"}, "driver not known, CUDA 12.8"),
    ],
)
def test_parts_of_a_value_that_are_known_are_shown(values: Document, words: str) -> None:
    assert words in "\n".join(screen(telemetry(name="RTX", **values)))


@pytest.mark.parametrize(
    ("source", "age_s", "words"),
    [
        ("nvml", 1.0, "values from NVML"),
        ("nvidia_smi_exe", 40.0, "values from nvidia-smi.exe, 20"),
        ("cuda", 1.0, "values from CUDA only"),
        ("", 1.0, "values from not known"),
    ],
)
def test_source_is_named_and_since_when_old_values_stand(
    source: str, age_s: float, words: str
) -> None:
    made = telemetry(name="RTX")
    made["telemetry"] |= {"level": source, "sources": {source: {"taken_s": NOW_S - age_s}}}
    (line,) = [line for line in screen(made) if "values from" in line]
    assert words in line
    assert line.endswith(words) or age_s > 30


def test_every_metric_has_a_row_and_those_that_matter_on_one_screen() -> None:
    made = machine()
    made["probes"] = [
        {
            "probe": name,
            "gpu": 0 if module.SPEC.backend == "cuda" else None,
            "samples": [
                {"mode": mode, "unit": module.SPEC.unit, "median": 1.234e-5}
                for mode in module.SPEC.modes
            ],
        }
        for name, module in modules(probes, ("SPEC",))[0].items()
        if not module.SPEC.peer
    ]
    made["streams"] = []
    page = documents.read(made)
    whole, brief = "\n".join(screen(made)), screen(made, View(80, 24))
    assert len(brief) < 24, "and the prompt below"
    for run in made["probes"]:
        for mode in [sample["mode"] for sample in run["samples"] if run["probe"] != "crossover"]:
            name = model.chart_name(run["gpu"], run["probe"], mode)
            assert [link for link in page.all("a") if link.attributes["href"] == f"#{name}"], name
            assert page[name].attributes["data-chart"] == "history"
            assert words.called(run["probe"], mode) in whole
            if (run["probe"], mode) in figures.MAIN:
                assert [line for line in brief if words.name_of(run["probe"], mode) in line], name


def test_figure_is_compared_with_its_own_power_source_alone() -> None:
    made = machine()
    for plugged in (True, False):
        status = read(made)
        (run,) = [run for run in status.probes if run.probe == "nbody"]
        assert (stream := status.stream(run, "nbody")) is not None
        assert stream.on_battery is not plugged
        for each in made["probes"]:
            each["conditions"] = {"after.ac": False}


def test_each_field_of_telemetry_that_has_a_value_has_a_chart_before_any_probe_has_run() -> None:
    made = telemetry(temperature_celsius=60.0, power_watts=None, throttle_reasons="none")
    made["probes"] = []
    page = documents.read(made)
    (chart,) = page.all("figure")
    assert chart.attributes["data-chart"] == "telemetry"
    assert chart.attributes["data-field"] == "temperature_celsius"
    assert "heat, power, clocks and use of GPU 0: NVIDIA" in page["heat-gpu0"].words
    assert "No probe has run yet." in page["figures"].words
