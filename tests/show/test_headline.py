"""State in one word: which, since when, why, and what to do."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gpud.document.status import Status, read
from gpud.show.headline import SHORTEST, Headline, headline, is_problem, short
from gpud.show.text import plain

SINCE_S = 1000.0


def health(level: int = 0, since_s: float = SINCE_S, **fields: str) -> dict[str, Any]:
    return {"level": level, "since_s": since_s, **fields}


def alert(**fields: Any) -> dict[str, Any]:
    return {
        "name": "GpudDriverRegression",
        "severity": "warning",
        "summary": "slower",
        "fix": "go back",
        "runbook": "/runbooks/GpudDriverRegression",
        "starts_s": 1500.0,
        "ends_s": None,
        "firing": True,
        "acknowledged_s": None,
    } | fields


def document(**fields: Any) -> Status:
    well = {"health": {"root": health()}, "alerts": [], "probes": [{"probe": "launch"}]}
    return read({"started_s": 900.0, "written_s": 2000.0, "state": "ok"} | well | fields)


def of(**fields: Any) -> Headline:
    return headline(document(**fields))


DEGRADED = {"nvml": health(1, 1100.0, detail="half")}
FAILED = DEGRADED | {"dockerd": health(2, 1300.0, detail="gone", fix="gpud up")}
WORSE = alert(severity="critical", summary="much slower", starts_s=1800.0)
LOST = {name: health(2, detail="the GPU is lost") for name in ("cuda", "devices", "nvml")}
LOST |= {"gate": health(1)}


@pytest.mark.parametrize(
    ("fields", "head"),
    [
        ({"health": FAILED, "alerts": [alert()]}, ("failed", "Failed", 1300.0, "Docker: gone", 1)),
        ({"health": DEGRADED, "alerts": [alert()]}, ("degraded", "Slower", 1500.0, "slower", 1)),
        ({"health": DEGRADED}, ("degraded", "Degraded", 1100.0, "NVML: half", 0)),
        ({"alerts": [alert(name="x")]}, ("degraded", "Degraded", 1500.0, "slower", 0)),
        ({"alerts": [alert(), WORSE]}, ("degraded", "Slower", 1500.0, "much slower", 1)),
        ({"health": LOST}, ("failed", "Failed", SINCE_S, "the GPU is lost", 1)),
    ],
    ids=["failure", "alert", "degraded", "other alert", "worst alert", "one cause"],
)
def test_failure_comes_before_an_alert_and_that_before_what_is_degraded(
    fields: dict[str, Any], head: tuple[str, str, float, str, int]
) -> None:
    shown = of(**fields)
    assert (*shown[:4], shown.more) == head


def test_machine_on_which_nothing_is_wrong_is_fine_since_the_last_trouble() -> None:
    shown = of(health={"root": health(), "store": health(since_s=1200.0)})
    assert (shown.state, shown.word, shown.since_s) == ("ok", "Fine", 1200.0)
    assert of(alerts=[alert(firing=False, ends_s=1700.0)]).since_s == 1700.0


def test_agent_without_a_run_is_starting_for_a_while_and_not_for_ever() -> None:
    shown = of(probes=[], started_s=1990.0)
    assert (shown.state, shown.word, shown.since_s) == ("starting", "Starting", 1990.0)
    assert of(probes=[], started_s=0.0).word == "Fine"
    broken = of(probes=[], started_s=1990.0, health={"cuda": health(2, detail="no library")})
    assert (broken.word, broken.why) == ("Failed", "CUDA: no library")
    for component, name in (("cuda", "CUDA"), ("something_new", "something_new")):
        unwell = of(health={component: health(1, reason="not_ready")})
        assert unwell.why == f"{name}: not ready"


def test_machine_whose_gpu_work_has_not_begun_is_fine_but_for_that() -> None:
    shown = of(gpu_from_s=2042.0)
    at = time.strftime("%H:%M:%S", time.localtime(2042.0))
    assert shown.why == "everything else that is watched works; "
    assert plain(shown.ahead) == f"GPU work begins at {at}: WSL has just started"
    assert of(gpu_from_s=1999.0).ahead is None


BUSY = {"probe": "launch", "gpu": 0, "samples": [{"mode": "submit"}], "flags": ["busy"]}
SKIPPED = [
    {"probe": probe, "gpu": 1, "reason": "gpu_busy", "utilization_gpu_ratio": ratio}
    for probe, ratio in (("launch", 0.35), ("triad", 0.41), ("copy", None))
]
ON_BATTERY = {"probe": "cpu_matmul", "gpu": None, "reason": "on_battery", "count": 2}
SHORT = {"probe": "launch", "gpu": 0, "reason": "resumed", "count": 1}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"streams": [{"level": None}]}, "everything that is watched works; what is usual here is"),
        ({"streams": [{"level": None}, {"level": 1e-5}]}, "everything that is watched works, and"),
        ({"alerts": [alert(acknowledged_s=1.0)]}, "one alert that you have acknowledged; nothing"),
        ({"put_off": [SHORT]}, "everything that is watched works, and nothing is slower"),
        (
            {"put_off": [*SKIPPED, ON_BATTERY]},
            "3 probes are skipped on GPU 1: other programs use 41 % of the GPU; 1 probe is skipped",
        ),
        ({"probes": [BUSY, BUSY]}, "GPU 0: other programs use the GPU, so its runs are marked"),
        ({"probes": [BUSY, BUSY | {"flags": []}]}, "everything that is watched works, and"),
    ],
)
def test_sentence_of_a_fine_machine_says_what_is_not_measured(
    fields: dict[str, Any], why: str
) -> None:
    shown = of(**fields)
    assert shown.word == "Fine"
    assert shown.why.startswith(why)


SLOW = {
    "stream": {"gpu": "GPU-1", "probe": "launch", "mode": "submit"},
    "unit": "seconds",
    "kind": "step",
    "before": 1e-5,
    "after": 1.12e-5,
    "slowdown": 1.12,
    "low": 1.1,
    "high": 1.14,
    "samples": 20,
    "reference": 200,
    "since_s": 1500.0,
    "seq": 9,
}
WORSE_COPY = SLOW | {"stream": {"gpu": None, "probe": "cpu_call", "mode": "call"}, "slowdown": 1.5}
BOTH = {"alerts": [alert(evidence=[SLOW, WORSE_COPY]), alert()]}
HOSTILE = "\x1b[2J`rm`$(a)#[b] \u202e\u00b5"
HUNG = {"health": {"gpu": health(2, reason="hung")}, "state": "failed"}


@pytest.mark.parametrize(
    ("fields", "words", "problem"),
    [
        ({}, "gpud ok", False),
        ({"probes": [], "started_s": 1990.0}, "gpud starting", False),
        ({"alerts": [alert(acknowledged_s=1.0)]}, "gpud ok", False),
        ({"alerts": [alert(name="GpudUnwell")]}, "gpud ok, 1 alert", True),
        (HUNG | {"alerts": [alert()]}, "gpud gpu hung", True),
        ({"health": {"store": health(1)}, "state": "degraded"}, "gpud store degraded", True),
        ({"alerts": [alert(evidence=[SLOW])]}, "gpud GPU 3 12 % slower: launch submit", True),
        (BOTH, "gpud CPU 50 % slower: cpu_call call (+1)", True),
        ({"alerts": [alert(summary=HOSTILE)]}, "gpud ??2J?rm??(a)??b? ?u", True),
        ({"alerts": [alert(summary="x" * 5000), alert()]}, f"gpud {'x' * 49}~ (+1)", True),
    ],
)
def test_short_form_is_the_worst_in_harmless_letters_and_how_much_else(
    fields: dict[str, Any], words: str, *, problem: bool
) -> None:
    shown = document(gpus={"GPU-1": {"number": 3}}, **fields)
    assert (short(shown), is_problem(shown)) == (words, problem)
    assert len(words) <= SHORTEST
