"""The state in one word: which one, since when, and what it says."""

from __future__ import annotations

from typing import Any

import pytest

from gpud.show.document import Status, read
from gpud.show.headline import FIRST, PLAIN, headline

SINCE_S = 1000.0


def health(level: int = 0, since_s: float = SINCE_S, **said: str) -> dict[str, Any]:
    return {"level": level, "since_s": since_s, "reason": None, "detail": None, "fix": None} | said


def alert(**said: Any) -> dict[str, Any]:
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
    } | said


def document(**said: Any) -> Status:
    known = {"health": {"root": health()}, "alerts": [], "probes": [{"probe": "launch"}]}
    return read({"started_s": 900.0, "written_s": 2000.0} | known | said)


def test_a_machine_on_which_nothing_is_wrong_is_fine_since_the_last_thing_was() -> None:
    said = headline(document(health={"root": health(), "store": health(since_s=1200.0)}))
    assert (said.state, said.word, said.since_s) == ("ok", "Fine", 1200.0)
    ended = alert(firing=False, ends_s=1700.0)
    assert headline(document(alerts=[ended])).since_s == 1700.0


def test_an_agent_without_a_run_is_starting_for_a_while_and_not_for_ever() -> None:
    said = headline(document(probes=[], started_s=1990.0))
    assert (said.state, said.word, said.since_s) == ("starting", "Starting", 1990.0)
    assert headline(document(probes=[], started_s=0.0)).word == "Fine"


def test_what_fails_at_the_start_is_not_hidden_by_it() -> None:
    broken = {"cuda": health(2, detail="no library")}
    said = headline(document(probes=[], started_s=1990.0, health=broken))
    assert (said.word, said.why) == ("Failed", "CUDA: no library")


def test_a_failure_is_named_before_an_alert_and_that_before_what_is_degraded() -> None:
    degraded = {"nvml": health(1, 1100.0, detail="half")}
    failed = degraded | {"dockerd": health(2, 1300.0, detail="gone", fix="gpud up")}
    said = headline(document(health=failed, alerts=[alert()]))
    assert (said.word, said.since_s, said.why) == ("Failed", 1300.0, "Docker: gone")
    assert (said.fix, said.more) == ("gpud up", 1)
    said = headline(document(health=degraded, alerts=[alert()]))
    assert (said.state, said.word, said.since_s) == ("degraded", "Slower", 1500.0)
    assert (said.why, said.about, said.more) == ("slower", "/runbooks/GpudDriverRegression", 1)
    said = headline(document(health=degraded))
    assert (said.word, said.since_s, said.why) == ("Degraded", 1100.0, "NVML: half")


def test_an_alert_of_something_else_than_slowness_degrades() -> None:
    assert headline(document(alerts=[alert(name="GpudFunctionLost")])).word == "Degraded"


def test_the_most_severe_alert_is_told_and_the_state_is_as_old_as_the_oldest() -> None:
    worse = alert(severity="critical", summary="much slower", starts_s=1800.0)
    said = headline(document(alerts=[alert(), worse]))
    assert (said.why, said.since_s, said.more) == ("much slower", 1500.0, 1)


def test_of_components_that_say_the_same_one_is_named_and_the_others_are_not_counted() -> None:
    lost = {name: health(2, detail="the GPU is lost") for name in ("cuda", "devices", "nvml")}
    said = headline(document(health=lost | {"gate": health(1)}))
    assert said.why == "the GPU is lost"
    assert said.more == 1


@pytest.mark.parametrize("component", ["cuda", "something_new"])
def test_a_component_without_words_is_told_by_its_reason(component: str) -> None:
    said = headline(document(health={component: health(1, reason="not_ready")}))
    assert said.why == f"{PLAIN.get(component, component)}: not ready"


def test_every_component_with_a_name_has_a_place() -> None:
    assert set(FIRST) == set(PLAIN)


def test_nothing_is_called_as_fast_as_before_while_there_is_no_before() -> None:
    learning: dict[str, Any] = {"level": None}
    said = headline(document(streams=[learning]))
    assert said.word == "Fine"
    assert "still being learned" in said.why
    known = headline(document(streams=[learning, {"level": 1.2e-5}]))
    assert "nothing is slower than it was" in known.why


def test_skipped_probes_are_named_in_the_sentence_of_a_machine_that_is_well() -> None:
    put_off: list[dict[str, Any]] = [
        {"probe": probe, "gpu": 1, "reason": "gpu_busy", "utilization_gpu_ratio": ratio}
        for probe, ratio in (("launch", 0.35), ("triad", 0.41), ("copy", None))
    ]
    put_off.append({"probe": "cpu_matmul", "gpu": None, "reason": "on_battery", "count": 2})
    said = headline(document(put_off=put_off))
    assert said.word == "Fine"
    assert said.why == (
        "3 probes are skipped on GPU 1: other programs use 41 % of the GPU; "
        "1 probe is skipped on the CPU: on battery; everything else that is watched works"
    )
    short = [{"probe": "launch", "gpu": 0, "reason": "resumed", "count": 1}]
    assert "skipped" not in headline(document(put_off=short)).why


def test_runs_that_are_all_marked_busy_are_not_called_learning() -> None:
    busy = [
        {"probe": "launch", "gpu": 0, "samples": [{"mode": "submit"}], "flags": ["busy"]}
        for _ in range(2)
    ]
    learning: list[dict[str, Any]] = [{"level": None}]
    why = headline(document(probes=busy, streams=learning)).why
    assert why.startswith("GPU 0: other programs use the GPU, so its runs are marked busy")
    one_clean = [busy[0], busy[1] | {"flags": []}]
    assert "learned" in headline(document(probes=one_clean, streams=learning)).why
