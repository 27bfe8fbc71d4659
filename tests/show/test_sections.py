"""Page and screen say the same: each thing is made once and written by both."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from gpud.agent.telemetry.fields import FIELDS
from gpud.child import probes
from gpud.discovery import modules
from gpud.show import gpus
from gpud.show.document import read
from gpud.show.view import View
from tests import snapshots
from tests.show import documents
from tests.show.documents import NOW_S, UUID, machine, screen, telemetry, two_gpus

if TYPE_CHECKING:
    from collections.abc import Callable

Change = dict[str, Any]


def full() -> Change:
    return documents.of(snapshots.full())


def dockerd(**fields: Any) -> Change:
    made = machine()
    made["root"]["dockerd"] |= fields
    return made


def health(**parts: Any) -> Change:
    made = machine()
    made["health"] |= {name: {"level": 2, "since_s": NOW_S} | part for name, part in parts.items()}
    return made


def skipped(*skips: Change) -> Change:
    return machine() | {"put_off": list(skips)}


def of_launch(**fields: Any) -> Change:
    made = machine()
    (run,) = [run for run in made["probes"] if run["probe"] == "launch"]
    run |= fields
    return made


def latest(median: float) -> Change:
    """Return a machine whose submission latency is slower, and what its last run alone took."""
    made = machine("regressed")
    (run,) = [run for run in made["probes"] if run["probe"] == "launch"]
    run["samples"] = [run["samples"][0] | {"median": median}]
    return made


def without_root() -> Change:
    made = machine() | {"root": None}
    made["health"]["root"] = {"level": 2, "detail": "root.json is 40 s old", "fix": "gpud up"}
    return made


def drifting() -> Change:
    made = machine("regressed")
    made["alerts"][0] |= {"evidence": [], "description": "line one\nline two", "causes": []}
    return made


def changed(*kinds: tuple[str, str, str, float]) -> Change:
    return machine() | {
        "changes": [
            {"kind": kind, "old": old, "new": new, "at_s": NOW_S + after_s}
            for kind, old, new, after_s in kinds
        ]
    }


NEW_DRIVER = (
    ("boot_id", "a", "b", 0.0),
    ("driver_version", "572.16", "576.02", 1.0),
    ("cuda_version", "12.8", "12.9", 1.0),
    ("driver_folder", "nv_1", "nv_2", 20.0),
)
TENSOR = {"mode": "tensor", "reason": "unsupported", "detail": "compute capability 7.5"}
ON_BATTERY = {"probe": "triad", "gpu": 0, "reason": "on_battery", "count": 2}
EITHER: dict[str, tuple[Callable[[], Change], list[str]]] = {
    "slower driver": (
        lambda: machine("regressed"),
        [
            "submission latency +12 %",
            "go back to driver 566.36",
            "12 % slower since driver 572.16",
            "566.36 → 572.16",
            "12 % slower (10.2 to 13.9 %)",
            "seen it: gpud alerts ack",
            "1 slower, 1 learning",
        ],
    ),
    "last run unlike the verdict": (
        lambda: latest(1.73 * 12.4e-6),
        ["12 % slower since driver 572.16, judged 2023-11-", "the last run is 73 % slower"],
    ),
    "alert without a cause": (drifting, ["submission latency +12 %", "warning"]),
    "dockerd": (
        lambda: dockerd(restarts={"killed": 1}, suspect_sockets=2),
        [
            "dockerd running",
            "owner gpud",
            "1 (1 killed)",
            "2 ignored, see docs/dockerd.md",
        ],
    ),
    "dockerd that dies": (
        lambda: dockerd(up=False, state="crashloop", reason="x", detail="exit 1", fix="look"),
        ["crashloop", "exit 1", "To do: look"],
    ),
    "dockerd of another": (lambda: dockerd(owner="docker_desktop"), ["owner docker desktop"]),
    "no root": (without_root, ["not known: root.json is 40 s old", "To do: gpud up"]),
    "GPU": (
        full,
        [
            'RTX "4070"\\x0a\\x1b[31m',
            "memory 1.0 of 12.0 GiB",
            "use 7 %",
            "power 32 of 200 W",
            "temperature 48 °C",
            "SM clock 2475 of 3105 MHz",
            "performance state P0",
            "slowed by power cap, thermal",
            "driver 572.16 (WSL side 570.00), CUDA 12.8; values from NVML",
            "GPU work is tried again at",
            "Without a value: not supported here: utilization memory",
        ],
    ),
    "two GPUs": (two_gpus, ["GPU 0: NVIDIA GeForce RTX 4070", "GPU 1: NVIDIA RTX A2000 12GB"]),
    "GPU that is gone": (
        lambda: machine("gpu_gone"),
        ["CUDA no longer offers GPU 0", "gone since", f"gpud gpus forget {UUID}"],
    ),
    "no GPU": (
        lambda: machine() | {"gpus": {}, "cuda": None, "expected": {}, "telemetry": {}},
        ["No GPU is known yet."],
    ),
    "grace of a boot": (
        lambda: machine() | {"gpu_from_s": NOW_S + 3600},
        ["GPU work begins at ", ": WSL has just started"],
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
    "unknown clocks": (lambda: telemetry(name="RTX"), ["no source tells: clock memory, clock SM"]),
    "two humps and flags": (
        full,
        ["13 µs (75%) / 40 µs (25%)", "not compared: GPU in use, slow clocks"],
    ),
    "failed run": (full, ["the last run failed: 8 of 8 bodies are wrong"]),
    "missing mode": (
        lambda: of_launch(missing=[TENSOR]),
        ["not on offer: tensor: compute capability 7.5"],
    ),
    "crossover": (machine, ["From 256 x 256 on the GPU is faster, copies included"]),
    "skips": (lambda: skipped(ON_BATTERY), ["triad GPU 0 on battery 2"]),
    "health": (
        lambda: health(cuda={"detail": "gone", "fix": "mend it"}, nvml={"reason": "too_new"}),
        ["cuda", "gone", "mend it", "nvml", "too new", "devices, discovery, dockerd, http"],
    ),
    "part that is not set up": (
        lambda: health(
            containers={"level": 0, "reason": "toolkit_not_installed", "detail": "not here"}
        ),
        ["containers", "toolkit not installed", "not here"],
    ),
    "one cause": (
        lambda: health(cuda={"detail": "lost", "fix": "x"}, nvml={"detail": "lost", "fix": "x"}),
        ["cuda, nvml"],
    ),
    "new driver": (
        lambda: changed(*NEW_DRIVER),
        [
            "the machine was started anew, driver 572.16 -> 576.02, CUDA 12.8 -> 12.9, driver fol",
        ],
    ),
    "GPUs counted": (lambda: changed(("gpus", "GPU-1", "GPU-1,GPU-2", 0.0)), ["GPUs 1 -> 2"]),
    "cost": (
        lambda: machine() | {"url": "http://127.0.0.1:9945"},
        ["GPU time 0.05 s, ", " % of one GPU", "page http://127.0.0.1:9945/"],
    ),
}
"""What is so, and words that page and screen have to say of it."""


@pytest.mark.parametrize("case", EITHER)
def test_page_and_screen_say_it(case: str) -> None:
    make, words = EITHER[case]
    made = make()
    page = documents.read(made).root.words
    lines = " ".join(" ".join(screen(made)).split())
    for expected in words:
        plain = re.sub("[()]", "", expected)
        assert plain in re.sub("[()]", "", page), "the page"
        assert plain in re.sub("[()]", "", lines.replace("To do ", "To do: ")), "the screen"


NEITHER: dict[str, tuple[Callable[[], Change], str]] = {
    "first sight": (lambda: changed(("cuda_version", None, "12.8", 0.0)), "-> 12.8"),  # type: ignore[arg-type]
    "acknowledged": (
        lambda: (
            machine("regressed")
            | {"alerts": [machine("regressed")["alerts"][0] | {"acknowledged_s": 1.0}]}
        ),
        "seen it",
    ),
    "ended": (
        lambda: (
            machine("regressed")
            | {"alerts": [machine("regressed")["alerts"][0] | {"firing": False}]}
        ),
        "seen it",
    ),
    "choice of the person": (
        lambda: (
            telemetry(name="RTX")
            | {
                "telemetry": {
                    "readings": [{"field": "pcie_width", "gpu": 0, "absent": "not_asked"}]
                }
            }
        ),
        "PCIe",
    ),
    "contexts enough": (
        lambda: machine() | {"contexts": {"used": 125, "budget": 250, "interval_s": 600.0}},
        "contexts",
    ),
    "contexts without a budget": (
        lambda: machine() | {"contexts": {"used": 9000, "budget": None, "interval_s": 60.0}},
        "contexts",
    ),
    "grace that is over": (lambda: machine() | {"gpu_from_s": 1.0}, "GPU work begins"),
    "GPU that nobody has": (
        lambda: (
            skipped(ON_BATTERY | {"reason": "no_gpu"})
            | {"health": {"cuda": {"level": 0, "reason": "no_gpu"}}}
        ),
        "CUDA offers no GPU",
    ),
    "page of somebody else": (
        lambda: health(http={"reason": "address_in_use"}) | {"url": "http://127.0.0.1:9945"},
        "http://127",
    ),
}
"""What is so, and words that neither page nor screen may say then."""


@pytest.mark.parametrize("case", NEITHER)
def test_neither_page_nor_screen_says_it(case: str) -> None:
    make, words = NEITHER[case]
    made = make()
    assert words not in documents.read(made).root.words
    assert words not in "\n".join(screen(made))


def test_one_slowdown_has_one_number_everywhere() -> None:
    made = machine("regressed")
    for stream in made["streams"]:
        stream["slowdown"] = 1.3  # the latest samples say something else
    for view in (View(), View(80, 24)):
        lines = "\n".join(screen(made, view))
        assert "12 % slower" in lines
        assert "30 % slower since" not in lines
    rows = documents.read(made).rows("figures")
    assert rows[0][3] == "12 % slower since driver 572.16"


@pytest.mark.parametrize("reason", sorted(gpus.REASONS.keys() - {gpus.NO_SOURCE}))
def test_missing_value_is_named_with_its_reason_and_never_nought(reason: str) -> None:
    made = telemetry(**dict.fromkeys(gpus.EXPECTED, None))
    for reading in made["telemetry"]["readings"]:
        reading["absent"] = reason
    why = gpus.missing(read(made))
    assert why.startswith(f"{gpus.REASONS[reason]}: clock memory, clock SM, memory total, ")
    assert any(why in " ".join(line.split()) for line in screen(made))
    for _, field, _ in gpus.CARD:
        assert not re.search(rf"\b{field.split('_')[0]} 0", "\n".join(screen(made)))


def test_value_that_only_one_of_two_gpus_lacks_is_named_with_its_number() -> None:
    made = two_gpus()
    why = gpus.missing(read(made))
    assert "no source tells: clock memory (GPU 1), clock SM (GPU 1)" in why
    assert any(why in line for line in screen(made))


@pytest.mark.parametrize("field", [name for name, field in FIELDS.items() if not field.machine])
def test_every_field_has_a_word_that_a_person_understands(field: str) -> None:
    words = gpus.missing(read(telemetry(**dict.fromkeys(gpus.EXPECTED, 1.0) | {field: None})))
    assert words.startswith("not supported here: ")
    assert not re.search(r"_|bytes|celsius|watts|hertz|ratio", words)


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
def test_parts_of_a_value_that_are_known_are_shown(values: Change, words: str) -> None:
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


def test_every_probe_has_a_row_on_one_screen_and_on_the_page() -> None:
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
    ]
    made["streams"] = []
    page = documents.read(made)
    for run in made["probes"]:
        place = "cpu" if run["gpu"] is None else "gpu0"
        name = (
            "crossover-gpu0" if run["probe"] == "crossover" else f"history-{place}-{run['probe']}"
        )
        assert name in page
    lines = screen(made, View(80, 24))
    assert len(lines) < 24, "and the prompt below"
    for run in made["probes"]:
        assert [line for line in lines if line.startswith(f"  {run['probe']} ")], run["probe"]


def test_figure_is_compared_with_its_own_power_source_alone() -> None:
    made = machine()
    status = read(made)
    (run,) = [run for run in status.probes if run.probe == "nbody"]
    assert (stream := status.stream(run, "nbody")) is not None
    assert not stream.on_battery
    for made_run in made["probes"]:
        made_run["conditions"] = {"after.ac": False}
    status = read(made)
    (run,) = [run for run in status.probes if run.probe == "nbody"]
    assert (stream := status.stream(run, "nbody")) is not None
    assert stream.on_battery
