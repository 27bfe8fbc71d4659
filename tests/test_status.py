"""What ``gpud status`` shows: one screen, a dash for what is unknown, and why it is."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gpud import discovery, status
from gpud.agent.status import document as made
from gpud.child import probes
from gpud.core import gpu_table
from gpud.core.events import HealthSet, SourceAnswered
from gpud.core.fields import FIELDS
from gpud.core.fold import fold
from gpud.core.headline import headline
from gpud.core.health import Level
from gpud.core.sample import Absent, Reading
from gpud.core.telemetry import LEVELS, Answer
from gpud.status.view import View, text
from tests import snapshots

if TYPE_CHECKING:
    from gpud.core.snapshot import Snapshot

NOW_S = snapshots.NOW.wall_s
CELL = dict(
    zip(
        gpu_table.HEADINGS,
        (
            None,
            ("name",),
            ("temperature_celsius",),
            ("power_watts", "power_limit_watts"),
            ("memory_used_bytes", "memory_total_bytes"),
            ("utilization_gpu_ratio",),
            ("clock_sm_hertz", "clock_memory_hertz"),
            ("pstate",),
            ("throttle_reasons",),
        ),
        strict=True,
    )
)
"""Which fields fill which cell."""


def full() -> dict[str, Any]:
    return plain(snapshots.full())


def plain(snapshot: Snapshot) -> dict[str, Any]:
    """The document as the command reads it: JSON."""
    document: dict[str, Any] = json.loads(json.dumps(made(snapshot, now=snapshots.NOW)))
    return document


def shown(document: dict[str, Any], now_s: float = NOW_S) -> list[str]:
    return status.lines(document, now_s)


def answered(*readings: Reading, source: str = "nvml", age_s: float = 1.0) -> dict[str, Any]:
    """A machine of which nothing is known but what one source says."""
    answer = Answer(
        source,
        LEVELS.index(source),
        NOW_S - age_s,
        snapshots.NOW.mono_s - age_s,
        readings,
        holds_s=330.0,
    )
    return made(fold(SourceAnswered(answer, NOW_S), snapshots.bare()), now=snapshots.NOW)


def read(field: str, value: float | str | Absent, gpu: int | None = 0) -> Reading:
    return Reading(gpu, field, value, "nvml")


def cells(document: dict[str, Any], gpu: int = 0) -> dict[str, str]:
    rows = {row[0]: row for row in gpu_table.rows(document)}
    return dict(zip(gpu_table.HEADINGS, rows[str(gpu)], strict=True))


def line_with(lines: list[str], words: str) -> str:
    (found,) = [line for line in lines if words in line]
    return found


def test_every_gpu_is_one_line_with_all_that_is_known() -> None:
    row = cells(full())
    assert row == {
        "GPU": "0",
        "name": 'RTX "4070"\\x0a\\x1b[31m',
        "temp": "48 °C",
        "power": "32/200 W",
        "memory": "1.0/12.0 GiB",
        "use": "7 %",
        "SM/mem clock": "2475/10501 MHz",
        "state": "P0",
        "slowed by": "power_cap,thermal",
    }
    card = line_with(shown(full()), "2475/10501 MHz").split(", ")
    assert card[0].strip() == "48 °C"
    assert card[1:] == [
        "32/200 W",
        "1.0/12.0 GiB",
        "use 7 %",
        "2475/10501 MHz",
        "P0",
        "slowed by power_cap,thermal",
    ]
    assert line_with(shown(full()), "GPU 0   ").strip().endswith(row["name"])


@pytest.mark.parametrize("reason", [reason for reason in Absent if reason in gpu_table.REASONS])
@pytest.mark.parametrize("heading", [heading for heading, fields in CELL.items() if fields])
def test_what_is_unknown_is_a_dash_and_never_nought(heading: str, reason: Absent) -> None:
    fields = CELL[heading] or ()
    document = answered(*(read(field, reason) for field in fields), read("uuid", "GPU-1"))
    assert cells(document)[heading] == "-"
    why = gpu_table.missing(document).split("; ")[0]
    assert why.startswith(f"{gpu_table.REASONS[reason]}: ")
    assert len(why.split(", ")) == len(fields)
    assert line_with(shown(document), f"  {why}")


@pytest.mark.parametrize(
    ("known", "cell", "words"),
    [
        ("power_watts", "power", "38 W"),
        ("power_limit_watts", "power", "-/38 W"),
        ("memory_total_bytes", "memory", "-/0.0 GiB"),
        ("clock_sm_hertz", "SM/mem clock", "0/- MHz"),
        ("utilization_gpu_ratio", "use", "3800 %"),
    ],
)
def test_half_of_a_cell_is_shown_beside_a_dash(known: str, cell: str, words: str) -> None:
    assert cells(answered(read(known, 38.0)))[cell] == words


def test_a_real_nought_is_shown() -> None:
    idle = answered(read("utilization_gpu_ratio", 0.0), read("power_watts", 0.0))
    assert cells(idle)["use"] == "0 %"
    assert cells(idle)["power"] == "0 W"


def test_nothing_holding_a_gpu_back_is_another_thing_than_not_knowing() -> None:
    assert cells(answered(read("throttle_reasons", "none")))["slowed by"] == "nothing"
    assert cells(answered(read("throttle_reasons", "idle,thermal")))["slowed by"] == (
        "idle,thermal"
    )
    assert cells(answered(read("uuid", "GPU-1")))["slowed by"] == "-"


def test_missing_values_are_told_in_one_line_by_reason() -> None:
    document = answered(
        read("fan_ratio", Absent.UNSUPPORTED),
        read("ecc_mode", Absent.UNSUPPORTED),
        read("ecc_corrected_total", Absent.UNSUPPORTED),
        read("power_watts", Absent.FAILED),
        read("temperature_celsius", 50.0),
    )
    line = line_with(shown(document), "not supported here")
    assert line.startswith("  not supported here: ECC, fan; failed: power; ")


def test_what_the_person_has_not_asked_for_is_no_lack() -> None:
    traffic = "pcie_sent_bytes_per_second"
    off = Reading(0, traffic, Absent.NOT_ASKED, "nvml", "it is off")
    assert "PCIe" not in gpu_table.missing(answered(off))
    assert "PCIe" in gpu_table.missing(answered(read(traffic, Absent.UNSUPPORTED)))


def test_what_only_one_of_two_gpus_lacks_is_told_with_its_number() -> None:
    document = answered(
        *(read("fan_ratio", Absent.UNSUPPORTED, gpu) for gpu in (0, 1)),
        read("power_watts", 20.0, 0),
        read("power_watts", Absent.NOT_PERMITTED, 1),
    )
    told = gpu_table.missing(document).split("; ")
    assert told[:2] == ["not supported here: fan", "not permitted: power (GPU 1)"]


def test_what_no_source_so_much_as_names_is_told_too() -> None:
    document = answered(read("name", "RTX"), read("memory_total_bytes", 8e9), source="cuda")
    told = gpu_table.missing(document)
    assert told.startswith("no source tells: clock memory, clock SM, memory used, power, ")
    assert "memory total" not in told
    whole = [read(field, Absent.UNSUPPORTED) for field in gpu_table.IN_CELLS]
    assert "no source" not in gpu_table.missing(answered(*whole))


@pytest.mark.parametrize("field", [name for name, field in FIELDS.items() if not field.machine])
def test_every_field_has_a_word_a_person_understands(field: str) -> None:
    said = gpu_table.missing(answered(read(field, Absent.FAILED)))
    words = said.removeprefix("failed: ")
    assert words
    assert "_" not in words
    assert not re.search(r"bytes|celsius|watts|hertz|ratio", words)


@pytest.mark.parametrize(
    ("source", "age_s", "words"),
    [
        ("nvml", 1.0, "telemetry from NVML"),
        ("nvidia_smi_exe", 40.0, "telemetry from nvidia-smi.exe, 40 s ago"),
        ("nvidia_smi", 10.0, "telemetry from nvidia-smi"),
        ("cuda", 1.0, "telemetry from CUDA only"),
    ],
)
def test_the_source_is_named_and_how_old_its_values_are(
    source: str, age_s: float, words: str
) -> None:
    document = answered(read("name", "RTX"), source=source, age_s=age_s)
    assert line_with(shown(document), "telemetry from").endswith(f"; {words}")


def test_without_any_gpu_it_says_so_in_a_line() -> None:
    none = answered(Reading(None, "exposed", "no", "dxg"), source="dxg")
    assert "  GPUs    none known" in shown(none)
    none["expected"] = {"GPU-1": {"name": "RTX", "gone_s": None}}
    assert "  GPUs    none that answers" in shown(none)
    bare = shown(made(snapshots.bare(), now=snapshots.NOW))
    assert not [line for line in bare if line.strip().startswith("GPU")]


def test_windows_driver_and_the_side_of_wsl_are_told_apart() -> None:
    both = [read("driver_version", "595.71", None), read("nvml_version", "595.45.03", None)]
    document = answered(*both, read("cuda_version", "13.1", None), read("name", "RTX"))
    document["platform"] = {"wsl": "2"}
    assert gpu_table.versions(document) == "driver 595.71 (WSL side 595.45.03), CUDA 13.1"
    document["platform"] = {"wsl": ""}
    assert gpu_table.versions(document) == "driver 595.71, CUDA 13.1"
    assert gpu_table.versions(answered(read("name", "RTX"))) == "driver -, CUDA -"


@pytest.mark.parametrize(
    ("driver", "nvml", "words"),
    [
        ("572.16", None, "driver 572.16, CUDA 12.8"),
        ("572.16", "572.16", "driver 572.16, CUDA 12.8"),
        (None, "570.86.09", "driver -, CUDA 12.8"),
    ],
)
def test_one_version_has_no_other_side_and_cuda_may_be_libcudas_word(
    driver: str | None, nvml: str | None, words: str
) -> None:
    told = {"driver_version": driver, "nvml_version": nvml}
    document = answered(*(read(field, text, None) for field, text in told.items() if text))
    document["platform"] = {"wsl": "2"}
    document["cuda"] = {"cuda_version": "12.8", "devices": []}
    assert gpu_table.versions(document) == words


def test_the_latest_changes_are_told_and_first_sights_are_none() -> None:
    document = full()
    document["changes"] = [
        {"kind": "cuda_version", "old": None, "new": "12.8", "at_s": NOW_S, "boot_id": "b"},
        *(
            {"kind": kind, "old": old, "new": new, "boot_id": "b", "at_s": NOW_S + 3600.0 * hour}
            for hour, (kind, old, new) in enumerate(
                [
                    ("driver_version", "570.1", "572.16"),
                    ("driver_version", "572.16", "576.02"),
                    ("gpus", "GPU-1", "GPU-1,GPU-2"),
                    ("boot_id", "a", "b"),
                ]
            )
        ),
    ]
    lines = [line.partition(": ")[2] for line in shown(document) if line.startswith("  changed")]
    assert lines == ["driver 572.16 -> 576.02", "GPUs 1 -> 2", "the machine was started anew"]


def test_a_new_driver_is_one_change_whatever_it_brings_along() -> None:
    document = full()
    document["changes"] = [
        {"kind": kind, "old": old, "new": new, "at_s": NOW_S + after_s, "boot_id": "b"}
        for kind, old, new, after_s in (
            ("boot_id", "a", "b", 0.0),
            ("driver_version", "572.16", "576.02", 1.0),
            ("cuda_version", "12.8", "12.9", 1.0),
            ("nvml_version", "570.86.10", "575.51.02", 1.0),
            ("driver_folder", "nv_dispi.inf_amd64_1", "nv_dispi.inf_amd64_2", 20.0),
        )
    ]
    lines = shown(document)
    (at,) = [n for n, line in enumerate(lines) if line.startswith("  changed")]
    assert lines[at].endswith(": the machine was started anew, driver 572.16 -> 576.02,")
    assert lines[at + 1].strip() == "CUDA 12.8 -> 12.9, NVML 570.86.10 -> 575.51.02,"
    assert lines[at + 2].strip().startswith("driver folder nv_dispi")


def calm() -> dict[str, Any]:
    """One GPU with every probe there is, and nothing wrong."""
    document = full()
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
        "detail": "the NVIDIA Container Toolkit is not installed: Docker has no way to hand out "
        "a GPU",
        "fix": "install it from NVIDIA's package repository, then " + "do this and that, " * 9,
    }
    lines = [text(one) for one in status.drawn(document, NOW_S, View(80, 24), url="http://[::1]/")]
    assert len(lines) < 24
    assert line_with(lines, "containers").startswith("  containers ok: the NVIDIA Container")
    assert not [line for line in lines if "fix: install" in line]
    assert [line for line in shown(document) if "fix: install" in line], "a pipe has all of it"


def test_one_gpu_and_all_well_is_one_screen() -> None:
    document = calm()
    for view in (View(80, 24), View(80, 24, ascii_only=True)):
        lines = [text(one) for one in status.drawn(document, NOW_S, view, url="http://[::1]:9945/")]
        assert len(lines) < 24  # and the prompt below it
        assert max(map(len, lines)) <= 80
        assert lines[-1].endswith("; page http://[::1]:9945/")
        for name in (*(state["probe"] for state in document["probes"]), "docker", "cost"):
            assert [line for line in lines if line.startswith(f"  {name}"[:18])], name


@pytest.mark.parametrize("width", [20, 40, 60, 79, 80, 100, 107, 200])
@pytest.mark.parametrize("height", [5, 24, 200])
def test_nothing_is_wider_than_the_terminal(width: int, height: int) -> None:
    for document in (full(), made(snapshots.bare(), now=snapshots.NOW)):
        for line in status.drawn(document, NOW_S, View(width, height), url="http://[::1]:9945/"):
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
    stream |= {"usual": 4e-6, "open": []}
    document["recent"] = [
        {"uuid": uuid, "probe": "launch", "mode": "submit", "unit": "seconds", "from_s": 0.0}
        | {"after_s": [60 * n for n in range(8)], "medians": [float(n + 1) for n in range(8)]}
    ]
    for state in document["probes"]:
        state["flags"] = []
    (line,) = [
        text(one)
        for one in status.drawn(document, NOW_S, View(100, 200))
        if text(one).startswith("  launch submit")
    ]
    assert line.split() == [
        *("launch", "submit", "5", "µs", "usual", "4", "µs", "25", "%", "slower", "▁▂▃▄▅▆▇█")
    ]
    ascii_only = status.drawn(document, NOW_S, View(100, 200, ascii_only=True))
    assert all(text(one).isascii() for one in ascii_only)


def test_a_rate_that_falls_is_slower_too() -> None:
    document = full()
    document["streams"] = [
        one | {"usual": 9.2e11} if one["probe"] == "triad" else one for one in document["streams"]
    ]
    for state in document["probes"]:
        state["conditions"] = {}
    (line,) = [one for one in shown(document) if one.startswith("  triad ")]
    assert line.split()[3:] == ["usual", "920", "GB/s", "100", "%", "slower"]


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
    assert shown(document)[1] == f"  do first: {headline(document).fix}" == "  do first: mend root"
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
    document["root"]["dockerd"] |= {"up": None}
    assert "  docker  not looked at (policy auto)" in shown(document)
    document["root"] = None
    assert "  docker  not known: root says nothing" in shown(document)


def well(name: str) -> dict[str, Any]:
    after = fold(HealthSet(name, Level.OK, NOW_S), snapshots.bare())
    return {"level": 0, "detail": after.health[name].detail}


def test_figures_are_marked_and_what_was_left_out_is_told() -> None:
    lines = shown(full())
    assert line_with(lines, "  launch submit ").endswith("(busy, low)")
    humps = " ".join(line_with(lines, "  launch roundtrip ").split())
    assert humps.startswith("launch roundtrip 13 µs ")
    assert humps.endswith("(25% at 40 µs, busy, low)")
    assert "  GPU 0  triad      gpu busy, 1 in a row" in lines
    bare = made(snapshots.bare(), now=snapshots.NOW)
    assert not any("left out" in line for line in shown(bare))


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
    at = lines.index("  cuda, devices, nvml ok")
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
    assert line_with(shown(document), "no gpu, 1400 in a row")
    document["health"]["cuda"] = {"level": 0, "reason": "no_gpu", "detail": "no GPU here"}
    assert not [line for line in shown(document) if "1400" in line]


def test_no_word_of_a_driver_or_a_file_begins_a_line_or_steers_the_terminal() -> None:
    evil = "one\ntwo\x1b[2J\x9b1m\u202egnp.exe"
    after = snapshots.full()
    after = fold(HealthSet("store", Level.FAILED, NOW_S, "x", evil, evil), after)
    document = plain(replace(after, platform={"wsl": evil}))
    document["changes"] += [
        {"kind": evil, "old": evil, "new": evil, "at_s": NOW_S + 3600.0, "boot_id": "b"},
    ]
    for line in shown(document):
        assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202e]", line)
    assert len(shown(document)) == len(shown(made(after, now=snapshots.NOW))) + 1


def test_an_agent_of_an_older_release_is_shown_too() -> None:
    document = full()
    document["telemetry"] = {"taken_s": 1.0, "readings": [], "failures": 0}
    assert "telemetry from -" in line_with(shown(document), "GPUs   ")


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
    assert lines[3].strip().startswith("WARNING: submission latency +12 % (12.4 -> 13.9 us)")
    assert lines[4].strip().endswith(f"gpud alerts ack {snapshots.SLOWER.fingerprint[:8]}")
    document = full()
    (one,) = document["alerts"]
    document["alerts"] = [one, one | {"fix": "another"}]
    assert "fix: another" in line_with(shown(document), "another")


def test_what_was_acknowledged_or_has_ended_takes_no_more_than_a_line() -> None:
    document = full()
    (one,) = document["alerts"]
    document["alerts"] = [one | {"acknowledged_s": 1.0}, one | {"firing": False}]
    lines = shown(document)
    assert "  alerts: 1 acknowledged; all of them: gpud alerts" in lines
    assert not [line for line in lines if "submission latency" in line]
    document["alerts"] = [one] * 5
    assert "  alerts: 2 more; all of them: gpud alerts" in shown(document)


def test_an_agent_of_before_tells_of_no_alerts_and_is_shown_all_the_same() -> None:
    document = full()
    del document["alerts"]
    assert any(line.startswith("  dxg        degraded") for line in shown(document))
    assert not [line for line in shown(document) if "alert" in line]
