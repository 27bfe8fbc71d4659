"""What a person reads in each state: the line on top, and where it is told in full."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.resources import files

import pytest
from msgspec import structs

from gpud.agent.serve import page
from gpud.agent.serve.page.parts import UNKNOWN
from gpud.agent.state.snapshot import Snapshot
from gpud.core.health import Level
from gpud.core.report import Owner
from gpud.core.stats import human
from tests import snapshots
from tests.agent.serve.page import machines
from tests.agent.serve.page.machines import NOW_S
from tests.agent.serve.page.measured import BIG, SMALL, run
from tests.agent.serve.page.reading import Page, read, view
from tests.events import alerts_changed, altered, health_set, root_read, run_finished


def line(shown: Page) -> str:
    return shown["state-line"].words.removeprefix("gpud: ")


def state(shown: Page) -> str:
    (html,) = shown.all("html")
    return html.attributes["data-state"]


def test_before_the_first_run_gpud_is_starting() -> None:
    shown = read(machines.started())
    assert state(shown) == "starting"
    assert line(shown).startswith("Starting since 2023-11-14 22:14 UTC the first probes have not")
    assert shown["state-rest"].words == "Nothing has been measured yet."
    assert "No GPU is known yet." in shown["gpus"].words
    assert "No probe has run yet." in shown["figures"].words


def test_page_shows_when_gpu_work_begins_until_then() -> None:
    machine = machines.started()
    waiting = read(altered(machine, gpu_from_s=NOW_S + 3600))
    assert re.search(
        r"GPU work begins at \S+ \S+ UTC ?: WSL has just started", waiting["gpus"].words
    )
    assert "GPU work begins" not in read(altered(machine, gpu_from_s=1.0))["gpus"].words


def test_a_fine_machine_says_so_and_shows_its_two_gpus() -> None:
    shown = read(machines.fine(BIG, SMALL))
    assert state(shown) == "ok"
    assert line(shown) == (
        "Fine since 2023-11-14 22:14 UTC "
        "everything that is watched works, and nothing is slower than it was"
    )
    assert (
        "Changed last: driver 572.16 -> 576.02, 2023-11-14 20:15 UTC" in shown["state-rest"].words
    )
    assert "alerts" not in shown
    cards = shown["gpus"].all("article")
    names = [next(card.all("h3")).words for card in cards]
    assert names == [f"GPU 0: {BIG.name}", f"GPU 1: {SMALL.name}"]
    assert ["submission latency", "12.4 µs", "as usual"] in shown.rows("gpus")
    assert ["GPU memory bandwidth", "228 GB/s", "as usual"] in shown.rows("gpus")


def test_a_machine_without_a_gpu_is_fine_and_says_why_there_is_none() -> None:
    shown = read(machines.fine())
    assert state(shown) == "ok"
    assert line(shown).startswith("Fine since")
    assert "everything that is here works; Windows offers no GPU to this machine" in line(shown)
    assert "No GPU: Windows offers no GPU to this machine" in shown["gpus"].words
    assert "Hint: for an NVIDIA GPU: install" in shown["state-rest"].words
    assert shown["telemetry"].words.startswith("Telemetry No source tells of a GPU.")
    assert (
        shown["drivers"].words == "Drivers 2023-11-14 20:15 UTC 572.16 \N{RIGHTWARDS ARROW} 576.02"
    )
    assert "distribution" not in shown
    assert "crossover" not in shown
    assert shown["history-cpu-cpu_call-title"].words == "Foreign call on the CPU"
    assert [row[:3] for row in shown.rows("history-cpu-cpu_call")] == [
        ["foreign call on the CPU cpu_call call", "350 ns", "350 ns"]
    ]


def test_a_slower_driver_is_the_first_thing_one_reads_with_its_evidence_below() -> None:
    shown = read(machines.slower(machines.fine(BIG, SMALL), BIG))
    assert state(shown) == "degraded"
    assert line(shown).startswith("Slower since 2023-11-14 20:15 UTC submission latency +38 % ")
    todo = shown["state-rest"].words
    assert "To do: go back to driver 572.16 in Windows" in todo
    assert [one.words for one in shown["state-rest"].all("code")] == ["gpud baseline accept"]
    assert shown.rows("alerts") == [
        [
            "submission latency launch submit",
            "38 % slower",
            "12.4 µs",
            "17.1 µs",
            "GPU 0",
            "35.2 to 40.7 %",
            "118 after 1400",
            "2023-11-14 20:15 UTC",
        ],
        [
            "launch round trip launch roundtrip",
            "38 % slower",
            "31.8 µs",
            "43.9 µs",
            "GPU 0",
            "35.2 to 40.7 %",
            "118 after 1400",
            "2023-11-14 20:15 UTC",
        ],
    ]
    alerts = shown["alerts"]
    assert "Likely cause, the likeliest first: driver 572.16 -> 576.02" in alerts.words
    assert [one.attributes["href"] for one in alerts.all("a")] == ["/runbooks/GpudDriverRegression"]
    assert "since 2023-11-14 20:15 UTC" in alerts.words, "as its rows say"
    assert "seen it: gpud alerts ack" in alerts.words
    assert ["submission latency", "17.1 µs", "38 % slower since driver 576.02"] in shown.rows(
        "gpus"
    )
    first = shown.rows("drivers")[0]
    assert first[:3] == ["submission latency", "GPU 0", "572.16 → 576.02"]
    assert first[3] == "38 % slower (35.2 to 40.7 %)"


def test_a_figure_that_is_not_what_the_verdict_says_has_both_told_with_their_runs() -> None:
    again = run_finished(run("launch", BIG, 1.13), BIG.uuid, NOW_S - 5, machines.NOW_MONO_S)
    shown = read(again(machines.slower(machines.fine(BIG), BIG)))
    row = [
        "submission latency",
        "14 µs",
        "38 % slower since driver 576.02 judged 2023-11-14 21:15 UTC; the last run is 13 % slower",
    ]
    assert row in shown.rows("gpus")
    assert row[2] in [one[3] for one in shown.rows("history-gpu0-launch")]
    calm = read(again(machines.fine(BIG)))
    both = "as usual over the latest runs; the last run is 13 % slower"
    assert ["submission latency", "14 µs", both] in calm.rows("gpus")


def test_what_was_acknowledged_is_told_and_troubles_nobody() -> None:
    shown = read(machines.slower(machines.fine(BIG), BIG, acknowledged_s=NOW_S - 60))
    assert state(shown) == "ok"
    assert "one alert that you have acknowledged; nothing else is wrong" in line(shown)
    assert "acknowledged 2023-11-14 22:14 UTC" in shown["alerts"].words
    assert "seen it" not in shown["alerts"].words


def test_an_alert_without_a_cause_or_a_fix_sends_one_to_the_doctor() -> None:
    made = machines.after(machines.fine(BIG), alerts_changed((machines.drifting(BIG),), NOW_S))
    shown = read(made)
    assert "Slower" in line(shown)
    assert "To do: gpud doctor looks for the cause" in shown["state-rest"].words
    assert "Likely cause" not in shown["alerts"].words


def test_a_gpu_that_is_gone_is_named_with_what_to_do() -> None:
    made = machines.gone(machines.fine(BIG, SMALL), SMALL)
    shown = read(made)
    assert state(shown) == "failed"
    assert "Failed since 2023-11-14 22:05 UTC CUDA no longer offers GPU 0" in line(shown)
    commands = [one.words for one in shown["state-rest"].all("code")]
    assert f"gpud gpus forget {BIG.uuid}" in commands
    assert "CUDA does not offer it since 2023-11-14 22:05 UTC" in shown["gpus"].words
    assert not any("gpu0" in one.attributes.get("id", "") for one in shown.all("figure"))
    blind = altered(made, telemetry=type(made.telemetry)())
    first = next(read(blind)["gpus"].all("article"))
    assert first.words.startswith("GPU 1")
    assert "gone since 2023-11-14 22:05 UTC" in read(blind)["gpus"].words


def test_without_nvml_the_figures_stay_and_the_card_says_what_is_missing() -> None:
    shown = read(machines.without_nvml(machines.fine(BIG)))
    assert state(shown) == "failed"
    assert "NVML: libnvidia-ml.so.1: cannot open shared object file" in line(shown)
    assert "To do: install the NVIDIA driver of Windows anew" in shown["state-rest"].words
    assert ["submission latency", "12.4 µs", "as usual"] in shown.rows("gpus")
    assert "No telemetry: NVML: libnvidia-ml.so.1: cannot open" in shown["gpus"].words
    assert not list(shown["gpus"].all("meter"))
    nvml = next(row for row in shown.rows("telemetry") if row[0] == "NVML")
    assert nvml[1:3] == ["library missing", "2023-11-14 22:14 UTC"]
    assert "install the NVIDIA driver" in nvml[-1]


def test_a_dockerd_that_dies_again_and_again_is_told_with_its_own_words() -> None:
    crash = machines.root(
        up=False,
        state="crashloop",
        reason="crashloop",
        detail="exit 1: no sockets found",
        fix="look at `sudo tail /var/log/gpud/dockerd.log`",
        ping_s=None,
    )
    shown = read(machines.after(machines.fine(BIG), crash))
    assert state(shown) == "failed"
    assert "Docker: exit 1: no sockets found" in line(shown)
    docker = shown.facts("docker")
    assert docker["dockerd"] == "dies again and again"
    assert docker["ping"] == UNKNOWN
    assert "sudo tail /var/log/gpud/dockerd.log" in shown["docker"].words


@pytest.mark.parametrize(
    ("owner", "words"),
    [
        (Owner.DOCKER_DESKTOP, "Docker Desktop, policy auto"),
        (Owner.OTHER_DISTRIBUTION, "another WSL distribution, policy auto"),
        (Owner.SYSTEMD, "systemd, policy auto"),
    ],
)
def test_a_dockerd_of_somebody_else_is_watched_and_its_owner_named(
    owner: Owner, words: str
) -> None:
    shown = read(
        machines.after(machines.fine(BIG), machines.root(owner=owner, containers_running=3))
    )
    assert state(shown) == "ok"
    docker = shown.facts("docker")
    assert (docker["kept by"], docker["dockerd"]) == (words, "running")
    assert (docker["version"], docker["containers running"]) == ("27.5.1", "3")


def test_sockets_that_only_pose_as_another_distributions_are_counted() -> None:
    shown = read(machines.after(machines.fine(BIG), machines.root(suspect_sockets=2)))
    assert shown.facts("docker")["suspect sockets"] == "2 ignored, see docs/dockerd.md"
    assert "suspect sockets" not in read(machines.fine(BIG)).facts("docker")


def test_restarts_are_told_by_their_reason() -> None:
    docker = read(snapshots.full()).facts("docker")
    assert (docker["restarts"], docker["ping"]) == ("1 (1 killed)", "1.2 ms")


def test_without_root_it_says_why_nothing_is_known_of_docker() -> None:
    silent = root_read(None, "root.json is 40 s old", NOW_S)
    shown = read(machines.after(machines.fine(BIG), silent))
    assert "gpud's supervisor: root.json is 40 s old" in line(shown)
    assert shown["docker"].words == ("Docker not known: root.json is 40 s old To do: gpud up")


def test_a_probe_that_does_not_go_away_is_told_and_so_is_what_waits_for_it() -> None:
    shown = read(machines.stuck(machines.fine(BIG)))
    assert state(shown) == "failed"
    assert "GPU work: pid 4711 was ended and is still there" in line(shown)
    assert [one.words for one in shown["state-rest"].all("code")] == ["wsl --shutdown"]
    assert shown.rows("skips-body")[0] == [
        "launch",
        "GPU 0",
        "a probe that was ended does not go away",
        "3",
    ]


def test_on_battery_what_is_left_out_is_listed_with_its_reason() -> None:
    shown = read(machines.on_battery(machines.fine(BIG)))
    assert state(shown) == "degraded"
    assert shown.rows("skips-body")[:3] == [
        [probe, "GPU 0", "on battery", "2"] for probe in ("copy", "matmul", "triad")
    ]


def old(snapshot: Snapshot) -> Page:
    return Page(page.page(replace(view(snapshot), fresh=frozenset())))


def test_figures_that_are_too_old_say_so_wherever_they_stand() -> None:
    shown = old(machines.fine(BIG))
    told = shown["state-rest"].words.partition("Too old to stand for now: ")[2]
    assert told.startswith("container_nbody (GPU 0), copy (GPU 0), cpu_call (CPU), ")
    assert ["submission latency", "12.4 µs old", "as usual"] in shown.rows("gpus")
    assert "too old to stand for now, last good run" in shown["history-gpu0-launch-latest"].words


def test_a_run_that_failed_says_so_in_the_place_of_its_figures() -> None:
    shown = read(snapshots.full())
    figure = shown["history-gpu0-copy"]
    assert "the last run failed: 8 of 8 bodies are wrong" in figure.words
    assert "data-chart" not in figure.attributes


def test_two_humps_are_two_figures_and_a_marked_run_says_what_for() -> None:
    shown = read(snapshots.full())
    (row,) = [
        one
        for one in shown.rows("history-gpu0-launch")
        if one[0] == "launch round trip launch roundtrip"
    ]
    assert row[1] == "13 µs (75%) / 40 µs (25%)"
    assert "kept apart: GPU in use, slow clocks" in shown["history-gpu0-launch-latest"].words


def test_a_chart_writes_a_figure_with_the_symbol_that_stands_in_its_table() -> None:
    script = files("gpud.agent.serve.http").joinpath("static/units.js").read_text("utf-8")
    for unit in ("seconds", "bytes_per_second", "flops_per_second"):
        for size in (1e-6, 1e-3) if unit == "seconds" else (1e6, 1e9, 1e12):
            assert f'"{human(size, unit).split()[1]}"' in script


def test_a_figure_is_compared_with_its_own_power_source_alone() -> None:
    document = view(snapshots.full()).document
    (triad,) = [one for one in document.probes if one.probe == "triad"]
    (stream,) = [one for one in document.streams if one.probe == "triad"]
    assert not stream.on_battery
    for mains, found in ((True, stream), (False, None)):
        run = structs.replace(triad, conditions={"after.ac": mains})
        assert document.stream(run, "triad") is found


def test_a_fix_for_two_components_is_told_once() -> None:
    broken = [
        health_set(name, Level.FAILED, NOW_S, "x", "y", "mend it") for name in ("nvml", "root")
    ]
    shown = read(machines.after(machines.fine(BIG), *broken))
    assert [row[3] for row in shown.rows("health")[:2]] == ["mend it", "as for nvml"]
