"""A person's word in the history: only about what exists, and at its place among the runs."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpud.agent import commands
from gpud.agent.store import FILE, Run, Store
from gpud.core import stats
from gpud.core.commands import (
    ALERT_ACKNOWLEDGED,
    BASELINE_ACCEPTED,
    BASELINE_RESET,
    CPU,
    EVERYTHING,
    Choice,
    Command,
)
from gpud.core.errors import GpudError
from gpud.core.sample import Backend, Device, RunReport, Unit

if TYPE_CHECKING:
    from pathlib import Path

DEVICE = Device(0, "GPU-aa11", "n", "0000:01:00.0", "8.9", 46, 1, 1)
SECOND = replace(DEVICE, uuid="GPU-bb22")


def run(probe: str, *modes: str, device: Device | None = DEVICE, unit: Unit = Unit.SECONDS) -> Run:
    backend = Backend.CPU if device is None else Backend.CUDA
    samples = tuple(stats.summarised([1e-6], mode=mode, unit=unit) for mode in modes)
    return Run(RunReport(probe, backend, device, samples), 1.0, "boot")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with closing(Store(tmp_path, now=str)) as store:
        store.append(
            [
                run("launch", "submit", "roundtrip"),
                run("triad", "triad", device=SECOND, unit=Unit.BYTES_PER_SECOND),
                run("cpu_call", "call", device=None),
                run("crossover", "matmul", unit=Unit.ELEMENTS),
            ]
        )
    return tmp_path


def said(folder: Path, after: int = 0) -> list[Command]:
    with closing(Store(folder, now=str)) as store:
        return store.read(lambda connection: commands.read(connection, after))


def fires(folder: Path, *fingerprints: str, ends_s: float | None = None) -> None:
    with closing(Store(folder, now=str)) as store:
        for fingerprint in fingerprints:
            row = (fingerprint, 1.0, 1.0, ends_s, "{}")
            store.write(
                lambda rows, row=row: rows.execute(  # type: ignore[misc]
                    "INSERT INTO alerts VALUES (?, ?, ?, ?, ?)", row
                )
            )


def test_what_is_said_is_kept_behind_the_newest_run_and_read_once(folder: Path) -> None:
    commands.accept(folder, EVERYTHING, now_s=5.0)
    with closing(Store(folder, now=str)) as store:
        store.append([run("launch", "submit")])
    commands.reset(folder, Choice(probe="launch", mode="submit"), now_s=6.0)
    first, second = said(folder)
    assert (first.kind, first.at_s, first.after_run) == (BASELINE_ACCEPTED, 5.0, 4)
    assert first.choice == EVERYTHING
    assert (second.kind, second.at_s, second.after_run) == (BASELINE_RESET, 6.0, 5)
    assert second.choice == Choice(None, "launch", "submit")
    assert said(folder, first.number) == [second]
    assert said(folder, second.number) == []


def test_other_events_and_damaged_rows_are_no_commands(folder: Path) -> None:
    with closing(Store(folder, now=str)) as store:
        for kind, body in (
            ("driver_version", '{"new":"1"}'),
            (BASELINE_RESET, "{"),
            (BASELINE_RESET, "[]"),
            (BASELINE_RESET, '{"after_run":1,"gpu":4}'),
        ):
            store.write(
                lambda rows, values=(kind, body): rows.execute(  # type: ignore[misc]
                    "INSERT INTO events (at_s, kind, body) VALUES (1.0, ?, ?)", values
                )
            )
    commands.reset(folder, EVERYTHING, now_s=6.0)
    assert [one.choice for one in said(folder)] == [EVERYTHING]


def test_a_gpu_may_be_named_by_the_beginning_of_its_uuid_and_the_cpu_as_such(folder: Path) -> None:
    assert commands.reset(folder, Choice("gpu-AA"), now_s=1.0) == Choice("GPU-aa11")
    assert commands.reset(folder, Choice("CPU"), now_s=1.0) == Choice(CPU)
    assert [one.choice.gpu for one in said(folder)] == ["GPU-aa11", CPU]


@pytest.mark.parametrize(
    ("choice", "words", "fix"),
    [
        (Choice("GPU-cc"), "no figures of a GPU GPU-cc", "GPU-aa11, GPU-bb22, cpu"),
        (Choice("GPU-"), "more than one GPU", "GPU-aa11, GPU-bb22, cpu"),
        (Choice(probe="lunch"), "no figures of a probe lunch; did you mean launch?", "launch"),
        (Choice(probe="launch", mode="submits"), "did you mean submit?", "roundtrip, submit"),
        (Choice(probe="triad", mode="submit"), "no figures of a mode submit", "triad"),
        (Choice("GPU-aa11", "triad"), "no figures of triad on GPU-aa11", "baseline show"),
        (Choice(probe="crossover"), "no figures of a probe crossover", "launch"),  # is not judged
    ],
)
def test_what_does_not_exist_is_refused_with_what_does(
    folder: Path, choice: Choice, words: str, fix: str
) -> None:
    with pytest.raises(GpudError) as caught:
        commands.accept(folder, choice, now_s=1.0)
    assert words in str(caught.value)
    assert fix in (caught.value.fix or "")
    assert said(folder) == []


def test_an_alert_that_fires_is_acknowledged_by_the_beginning_of_its_fingerprint(
    folder: Path,
) -> None:
    fires(folder, "ab12cd34ab12cd34", "ab99cd34ab12cd34")
    fires(folder, "ff00cd34ab12cd34", ends_s=2.0)
    assert commands.acknowledge(folder, "AB12", now_s=9.0) == "ab12cd34ab12cd34"
    (command,) = said(folder)
    assert (command.kind, command.fingerprint) == (ALERT_ACKNOWLEDGED, "ab12cd34ab12cd34")
    for begun, words in (("ab", "more than one"), ("ff00", "no alert ff00 fires"), ("", "no ")):
        with pytest.raises(GpudError, match=words) as caught:
            commands.acknowledge(folder, begun, now_s=9.0)
        assert "ab12cd34ab12cd34, ab99cd34ab12cd34" in (caught.value.fix or "")
    assert len(said(folder)) == 1


def test_with_nothing_to_acknowledge_that_is_said(folder: Path) -> None:
    with pytest.raises(GpudError, match="nor does any other"):
        commands.acknowledge(folder, "ab", now_s=9.0)


def test_a_damaged_history_is_not_set_aside_without_a_word(folder: Path) -> None:
    (folder / FILE).write_bytes(b"no database" * 999)
    with pytest.raises(GpudError, match=r"damaged; it was set aside as .*gpud\.db\.corrupt-1970"):
        commands.accept(folder, EVERYTHING, now_s=5.0)
    with pytest.raises(GpudError, match="no figures"):  # of the new one
        commands.accept(folder, EVERYTHING, now_s=6.0)


def test_without_a_history_none_is_made(tmp_path: Path) -> None:
    for act in (commands.accept, commands.reset):
        with pytest.raises(GpudError, match="nothing in it"):
            act(tmp_path, EVERYTHING, now_s=1.0)
    assert not (tmp_path / FILE).exists()
