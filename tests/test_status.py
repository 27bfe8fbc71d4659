"""What ``gpud status`` shows: one screen, a dash for what is unknown, and why it is."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from gpud import discovery
from gpud.agent.state.status import document as made
from gpud.child import probes
from gpud.core.errors import GpudError
from gpud.core.health import Level
from gpud.show import status
from gpud.show.document import read
from gpud.show.headline import headline
from gpud.show.view import View, text
from tests import snapshots
from tests.events import altered, health_set
from tests.statuses import NOW_S, full, line_with, plain, shown

if TYPE_CHECKING:
    from collections.abc import Iterator


def calm() -> dict[str, Any]:
    """One GPU with every probe there is, and nothing wrong."""
    document = full() | {"url": "http://[::1]:9945"}
    document["health"] = {name: well(name) for name in document["health"]}
    document["breaker"], document["put_off"], document["alerts"] = None, [], []
    document["streams"] = [{**one, "open": [], "verdict": None} for one in document["streams"]]
    document["probes"] = [
        {
            "probe": name,
            "gpu": 0 if module.SPEC.backend == "cuda" else None,
            "flags": [],
            "missing": [],
            "samples": [
                {"mode": mode, "unit": module.SPEC.unit, "median": 1.234e-5, "peaks": []}
                for mode in module.SPEC.modes
            ],
        }
        for name, module in discovery.modules(probes, ("SPEC",))[0].items()
    ]
    assert sum(len(state["samples"]) for state in document["probes"]) > 25
    return document


def test_well_with_advice_is_one_screen_too() -> None:
    document = calm()
    document["health"]["containers"] = {
        "level": 0,
        "reason": "not_set_up",
        "detail": "the NVIDIA Container Toolkit is not installed: Docker has no way to hand out "
        "a GPU",
        "fix": "install it from NVIDIA's package repository, then " + "do this and that, " * 9,
    }
    lines = [text(one) for one in status.drawn(read(document), NOW_S, View(80, 24))]
    assert len(lines) < 24
    assert line_with(lines, "containers").startswith("  containers not set up: the NVIDIA Cont")
    assert not [line for line in lines if "fix: install" in line]
    assert [line for line in shown(document) if "fix: install" in line], "a pipe has all of it"
    assert "  containers not set up" in shown(document)


def test_one_gpu_and_all_well_is_one_screen() -> None:
    document = calm()
    for view in (View(80, 24), View(80, 24, ascii_only=True)):
        lines = [text(one) for one in status.drawn(read(document), NOW_S, view)]
        assert len(lines) < 24  # and the prompt below it
        assert max(map(len, lines)) <= 80
        assert lines[-1].endswith("; page http://[::1]:9945/")
        for name in (*(state["probe"] for state in document["probes"]), "docker", "cost"):
            assert [line for line in lines if line.startswith(f"  {name}"[:18])], name


@pytest.mark.parametrize("width", [20, 40, 60, 79, 80, 100, 107, 200])
@pytest.mark.parametrize("height", [5, 24, 200])
def test_nothing_is_wider_than_the_terminal(width: int, height: int) -> None:
    for document in (full(), made(snapshots.bare(), now=snapshots.NOW)):
        for line in status.drawn(read(document), NOW_S, View(width, height)):
            assert len(text(line)) <= width


def test_a_figure_stands_beside_what_is_usual_and_what_it_was_lately() -> None:
    document = full()
    (uuid,) = document["gpus"]
    (stream,) = [
        one
        for one in document["streams"]
        if (one["gpu"], one["probe"], one["mode"]) == (0, "launch", "submit")
        and not one["on_battery"]
    ]
    stream |= {"usual": 4e-6, "slowdown": 1.25, "open": []}
    document["recent"] = [
        {"uuid": uuid, "probe": "launch", "mode": "submit", "unit": "seconds", "from_s": 0.0}
        | {"after_s": [60 * n for n in range(8)], "medians": [float(n + 1) for n in range(8)]}
    ]
    for state in document["probes"]:
        state["flags"] = []
    (line,) = [
        text(one)
        for one in status.drawn(read(document), NOW_S, View(100, 200))
        if text(one).startswith("  launch submit")
    ]
    assert line.split() == [
        *("launch", "submit", "5", "µs", "usual", "4", "µs", "25", "%", "slower", "▁▂▃▄▅▆▇█")
    ]
    ascii_only = status.drawn(read(document), NOW_S, View(100, 200, ascii_only=True))
    assert all(text(one).isascii() for one in ascii_only)


def test_a_rate_that_falls_is_slower_too() -> None:
    document = full()
    document["streams"] = [
        one | {"usual": 9.2e11, "level": 9.2e11, "slowdown": 2.0}
        if one["probe"] == "triad"
        else one
        for one in document["streams"]
    ]
    for state in document["probes"]:
        state["conditions"] = {}
    (line,) = [one for one in shown(document) if one.startswith("  triad ")]
    assert line.split()[-6:] == ["usual", "920", "GB/s", "100", "%", "slower"]


def test_the_state_says_since_when_and_what_to_do_first() -> None:
    lines = shown(full())
    assert re.match(r"gpud 0\.1\.0: failed, 1 alert since 20\d\d-\d\d-\d\d \d\d:\d\d \(", lines[0])
    assert lines[1] == "  do first: wsl --shutdown"
    document = full()
    document["health"] = {name: well(name) | {"since_s": NOW_S - 3720} for name in ("gpu", "root")}
    document |= {"state": "ok", "alerts": []}
    assert shown(document)[0].endswith(" (1 h 2 min)")
    assert "do first" not in shown(document)[1]


def test_what_to_do_first_is_what_the_page_says() -> None:
    document = full() | {"alerts": []}
    document["health"] = {
        name: {"level": 2, "reason": "x", "detail": name, "fix": f"mend {name}", "since_s": NOW_S}
        for name in ("alerts", "cuda", "root")
    }
    assert (
        shown(document)[1]
        == f"  do first: {headline(read(document)).fix}"
        == "  do first: mend root"
    )
    document["health"]["root"]["fix"] = None
    assert shown(document)[1] == "  do first: mend alerts"


def test_a_document_that_nobody_writes_any_more_says_its_age() -> None:
    assert "data" not in shown(full(), NOW_S + 5)[0]
    assert shown(full(), NOW_S + 90)[0].endswith(", data 1 min old")


def test_docker_is_one_line_whatever_is_known() -> None:
    document = full()
    restarted = "  docker  up, 20.10.24, kept by gpud, 1 restart (killed 1)"
    assert restarted in shown(document)
    document["root"]["dockerd"] |= {"up": False, "state": "backoff"}
    assert "  docker  backoff, 20.10.24, kept by gpud, 1 restart (killed 1)" in shown(document)
    document["root"]["dockerd"] |= {"reason": "binary_missing", "state": "misconfigured"}
    restarted = "  docker  misconfigured, 20.10.24, binary missing, 1 restart (killed 1)"
    assert restarted in shown(document)
    document["root"]["dockerd"] |= {"suspect_sockets": 2}
    assert f"{restarted}, 2 suspect sockets ignored, see docs/dockerd.md" in shown(document)
    document["root"]["dockerd"] |= {"up": None}
    assert "  docker  not looked at (policy auto)" in shown(document)
    document["root"] = None
    assert "  docker  not known: root says nothing" in shown(document)


def well(name: str) -> dict[str, Any]:
    after = health_set(name, Level.OK, NOW_S)(snapshots.bare())
    return {"level": 0, "detail": after.health[name].detail}


def test_figures_are_marked_and_what_was_left_out_is_told() -> None:
    lines = shown(full())
    assert line_with(lines, "  launch submit ").endswith("(busy, low)")
    humps = " ".join(line_with(lines, "  launch roundtrip ").split())
    assert humps.startswith("launch roundtrip launch round trip 13 µs ")
    assert humps.endswith("(25% at 40 µs, busy, low)")
    assert "  GPU 0  triad      somebody else uses the GPU, 1 in a row" in lines
    bare = made(snapshots.bare(), now=snapshots.NOW)
    assert not any("skipped" in line for line in shown(bare))


def test_modes_that_the_machine_does_not_offer_are_told() -> None:
    document = full()
    tensor = {"mode": "tensor", "reason": "unsupported", "detail": "compute capability 7.5"}
    state = {"probe": "tensor", "gpu": 0, "samples": [], "flags": [], "missing": [tensor]}
    document["probes"].append(state)
    lines = shown(document)
    below = lines[lines.index("  not on offer") + 1]
    assert below.split() == ["GPU", "0", "tensor", "tensor:", "unsupported"]


def test_parts_that_are_well_share_a_line_and_the_others_say_why() -> None:
    lines = shown(full())
    assert "  ok         cuda, devices, discovery, dockerd, nvml, root, store" in lines
    at = lines.index("  dxg        degraded")
    assert lines[at + 1].startswith("             because: the kernel's log")
    assert lines[at + 2].startswith("             fix: ")


def test_parts_with_one_cause_tell_it_once() -> None:
    document = full()
    why = {"level": 0, "reason": "no_gpu", "detail": "no GPU here", "fix": "get one"}
    document["health"] = dict.fromkeys(("cuda", "devices", "nvml"), why)
    lines = shown(document)
    at = lines.index("  cuda, devices, nvml no gpu")
    assert lines[at + 1 : at + 3] == [f"{'':13}because: no GPU here", f"{'':13}fix: get one"]
    assert sum("get one" in line for line in lines) == 1


def test_a_fix_for_two_faults_is_told_once() -> None:
    document = full() | {"alerts": []}
    document["health"] = {
        name: {"level": 2, "reason": "x", "detail": f"{name} is blocked", "fix": "free it"}
        for name in ("cuda", "nvml")
    }
    told = [line.strip() for line in shown(document) if ": free it" in line or "as for" in line]
    assert told == ["do first: free it", "fix: free it", "fix: as for cuda"]


def test_no_probe_waits_for_a_gpu_where_there_is_none() -> None:
    document = full()
    document["put_off"] = [{"probe": "launch", "gpu": None, "reason": "no_gpu", "count": 1400}]
    assert line_with(shown(document), "CUDA offers no GPU, 1400 in a row")
    document["health"]["cuda"] = {"level": 0, "reason": "no_gpu", "detail": "no GPU here"}
    assert not [line for line in shown(document) if "1400" in line]


def test_no_word_of_a_driver_or_a_file_begins_a_line_or_steers_the_terminal() -> None:
    evil = "one\ntwo\x1b[2J\x9b1m\u202egnp.exe"
    after = snapshots.full()
    after = health_set("store", Level.FAILED, NOW_S, "x", evil, evil)(after)
    document = plain(altered(after, platform={"wsl": evil}))
    document["changes"] += [
        {"kind": evil, "old": evil, "new": evil, "at_s": NOW_S + 3600.0, "boot_id": "b"},
    ]
    for line in shown(document):
        assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202e]", line)
    assert len(shown(document)) == len(shown(made(after, now=snapshots.NOW))) + 1


def test_an_agent_of_an_older_release_is_shown_too() -> None:
    document = full()
    document["telemetry"] = {"taken_s": 1.0, "readings": [], "failures": 0}
    del document["alerts"]
    lines = shown(document)
    assert "telemetry from -" in line_with(lines, "GPUs   ")
    assert any(line.startswith("  dxg        degraded") for line in lines)
    assert not [line for line in lines if "alert" in line]


def test_a_document_that_cannot_be_read_is_an_error_with_a_fix() -> None:
    with pytest.raises(GpudError, match=r"can show: .* `\$\.probes`") as caught:
        read(full() | {"probes": 7})
    assert caught.value.fix == "sudo gpud restart"


def test_the_title_calls_what_has_become_slower_slower_and_since_when() -> None:
    document = full()
    (alert,) = document["alerts"]
    document["health"] = {name: well(name) | {"since_s": NOW_S - 9e5} for name in ("gpu", "root")}
    document |= {"state": "ok", "alerts": [alert | {"starts_s": NOW_S - 3720}]}
    title = shown(document)[0]
    assert title.startswith("gpud 0.1.0: slower, 1 alert since ")
    assert title.endswith(" (1 h 2 min)")


def test_what_fires_comes_first_with_its_fix_and_how_to_say_that_it_was_seen() -> None:
    document = full()
    document["health"] = {"gpu": well("gpu")}
    lines = shown(document)
    assert lines[1].strip() == "do first: go back to driver 566.36"
    assert lines[3].strip().startswith("WARNING: submission latency +12 % (12.4 -> 13.9 µs)")
    assert lines[4].strip().endswith(f"gpud alerts ack {snapshots.SLOWER.fingerprint[:8]}")
    document = full()
    (one,) = document["alerts"]
    document["alerts"] = [one, one | {"fix": "other way"}]
    assert "fix: other way" in line_with(shown(document), "other way")


def test_what_was_acknowledged_or_has_ended_takes_no_more_than_a_line() -> None:
    document = full()
    (one,) = document["alerts"]
    document["alerts"] = [one | {"acknowledged_s": 1.0}, one | {"firing": False}]
    lines = shown(document)
    assert "  alerts: 1 acknowledged; all of them: gpud alerts" in lines
    assert not [line for line in lines if "submission latency +12 %" in line]
    document["alerts"] = [one] * 5
    assert "  alerts: 2 more; all of them: gpud alerts" in shown(document)


def test_nothing_links_to_a_page_that_somebody_else_may_serve() -> None:
    document = calm()
    assert "  page    http://[::1]:9945/" in shown(document)
    document["health"]["http"] = {"level": 2, "reason": "address_in_use", "detail": "taken"}
    for view in (View(), View(80, 24)):
        assert not [
            one for one in status.drawn(read(document), NOW_S, view) if "http://" in text(one)
        ]


@pytest.mark.parametrize("width", [60, 80])
def test_the_last_change_is_shown_whole_on_a_brief_screen(width: int) -> None:
    document = calm()
    kinds = {"driver_version": "driver", "cuda_version": "CUDA", "nvml_version": "NVML"}
    update = {"old": "580.97", "new": "572.16", "at_s": NOW_S, "boot_id": "b"}
    document["changes"] = [{**update, "kind": kind} for kind in kinds]
    lines = [text(one) for one in status.drawn(read(document), NOW_S, View(width, 24))]
    at = next(n for n, one in enumerate(lines) if one.lstrip().startswith("changed "))
    told = " ".join(one.strip() for one in lines[at : at + 3])
    for name in kinds.values():
        assert f"{name} 580.97 -> 572.16" in told


@pytest.fixture
def kolkata(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("kolkata")
def test_every_moment_on_the_screen_is_in_the_time_zone_of_who_looks() -> None:
    document = full()
    gone = "CUDA no longer offers GPU 0 since 2023-11-14 22:14 UTC"
    document["health"]["devices"] = {"level": 2, "reason": "gone", "detail": gone}
    document["health"]["devices"] |= {"since_s": 1_700_000_040.0, "fix": None}
    (alert,) = document["alerts"]
    document["alerts"] = [alert | {"summary": "slower since 2023-11-14 22:14 UTC, at once"}]
    for view in (View(), View(80, 24)):
        told = " ".join(text(one).strip() for one in status.drawn(read(document), NOW_S, view))
        assert "UTC" not in told
        assert "GPU 0 since 2023-11-15 03:44" in told
        assert "slower since 2023-11-15 03:44, at once" in told


def test_an_alert_is_as_old_as_what_it_tells_of() -> None:
    document = full()
    (alert,) = document["alerts"]
    document["health"] = {}
    began_s = min(one["since_s"] for one in alert["evidence"])
    document["alerts"] = [alert | {"starts_s": began_s + 1800.0}]
    began = time.strftime("since %Y-%m-%d %H:%M", time.localtime(began_s))
    lines = shown(document)
    assert began in lines[0]
    assert began in line_with(lines, "gpud alerts ack")
