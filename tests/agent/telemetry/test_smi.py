"""nvidia-smi: real programs that misbehave, started once for a driver; its answers as a whole."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from gpud.agent import children
from gpud.agent.telemetry import smi_output
from gpud.agent.telemetry.fields import FIELDS, WORDS
from gpud.agent.telemetry.smi_output import ARGUMENTS, FIXES
from gpud.agent.telemetry.sources import nvidia_smi_exe
from gpud.agent.telemetry.sources.nvidia_smi_exe import REST_S
from gpud.core.errors import TelemetryError
from gpud.core.sample import Absent
from gpud.core.text import escaped
from tests.agent.measure.ticking import HELD_UP_S, ticking
from tests.agent.telemetry.smi_world import CELLS, EXE, WSL2, World, line, once, values
from tests.fuse import stalling, usable
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    with made.interop():
        yield made


async def test_an_answer_has_the_moment_of_its_question(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "1")
    text = world.file("text", line() + "\n")
    path = world.program("bin/nvidia smi*", f"cat {text}; env >{world.root}/environment")
    answer = await once(world, path)
    assert "SECRET" not in (world.root / "environment").read_text()
    assert values(answer)["utilization_gpu_ratio"] == 0.07
    assert values(answer)["fan_ratio"] is Absent.UNSUPPORTED
    assert (answer.taken_s, answer.holds_s) == (world.wall_s, 330)
    assert (world.starts, world.counted) == ([" ".join(ARGUMENTS)], 1)


@pytest.mark.parametrize(
    ("script", "reason", "words"),
    [
        ("exit 1", "interop_failed", "ended with 1"),
        ("exit 2", "invalid_argument", ""),
        ("exit 6", "no_device", ""),
        ("exit 8", "power_cable", ""),
        ("exit 9", "driver_not_loaded", "nvidia_smi_exe ended with 9, driver not loaded"),
        ("exit 12", "library_missing", ""),
        ("printf 'It \\033[31mfailed.\\nMore.'; exit 15", "gpu_is_lost", ': "It \\x1b[31mfailed."'),
        ("exit 18", "driver_mismatch", ""),
        ("printf 'Z\\0u\\0\\r\\0\\n\\0' >&2; exit 126", "not_executable", ': "Zu"'),
        ("echo; exit 127", "absent", "127"),
        ("exit 255", "failed", ""),
        ("kill -SEGV $$", "crashed", "SIGSEGV"),
        ("kill -40 $$", "crashed", ""),
        ("echo 'Aucun GPU, helas'", "bad_output", "Aucun GPU"),
    ],
)
async def test_each_bad_end_is_a_failure_with_its_reason(
    world: World, script: str, reason: str, words: str
) -> None:
    answer = await once(world, world.program("bin/nvidia-smi", script))
    assert (answer.reason, answer.fix, answer.readings) == (reason, FIXES.get(reason), ())
    assert words in str(answer.detail)
    assert world.counted == 1


async def test_a_missing_program_is_no_start_and_is_found_later(world: World) -> None:
    path = world.says("bin/nvidia-smi", line() + "\n")
    path.chmod(0o644)  # no program
    source = world.source(path)
    answer = await world.answer(source)
    assert (answer.reason, world.counted) == ("absent", 0)
    assert str(path) in str(answer.detail)
    path.chmod(0o755)
    world.later(REST_S - 1)
    assert await world.collect(source) is None
    world.later(1)
    assert values(await world.collect(source))["pstate"] == 8


# seldom, and never two


async def test_one_start_in_five_minutes_also_across_restarts_and_clock_changes(
    world: World,
) -> None:
    path = world.says("bin/nvidia-smi", "", 9)
    source = world.source(path)
    for collection in range(120):
        if collection % 7 == 0:
            source = world.source(path)
            world.wall_s -= 86_400
        await world.collect(source)
        world.later(10)
    assert len(world.starts) == world.counted == 4


@pytest.mark.parametrize("script", ["exit 9", f"echo '{line()}'"])
async def test_each_driver_is_a_reason_for_one_start_while_nvml_is_silent(
    world: World, script: str
) -> None:
    source = world.source(world.program("bin/nvidia-smi", script))

    async def starts_in_an_hour(folder: str | None, reason: str | None = "hung") -> int:
        before = len(world.starts)
        world.told("nvml", reason, driver_version="572.16")
        if folder is not None:
            world.told("dxg", driver_folder=folder, exposed="yes")
        for _ in range(360):
            await world.collect(source)
            world.later(10)
        return len(world.starts) - before

    assert await starts_in_an_hour("nv_old", None) == 0  # NVML answers
    assert await starts_in_an_hour(None) == 1
    assert await starts_in_an_hour("nv_old", None) == 0
    assert await starts_in_an_hour("nv_old") == 0
    assert await starts_in_an_hour("nv_new") == 1
    world.told("dxg", exposed="disabled", driver_folder="nv_newest")
    assert await world.collect(source) is None  # the person wants no GPU here


async def test_a_program_that_hangs_is_killed_once_and_not_started_again(world: World) -> None:
    pids = world.root / "pids"
    path = world.program("bin/nvidia-smi", f"echo $$ >>{pids}\nexec sleep 100")
    source = world.source(path, deadline_s=0.5)
    async with ticking() as gap:
        answer = await world.answer(source)
    assert (answer.reason, bool(answer.fix)) == ("hung", True)
    assert gap.largest_s < HELD_UP_S
    assert await world.collect(world.source(path)) is None, "it rests across a restart"
    world.later(100_000)
    assert await world.collect(source) is None
    with pytest.raises(ProcessLookupError):
        os.kill(int(pids.read_text()), 0)


@pytest.mark.parametrize("note", ["", "no number", "300000.5"])
async def test_a_note_of_another_boot_or_a_damaged_one_prevents_no_start(
    world: World, note: str
) -> None:
    (world.own / "nvidia_smi_exe.json").write_text(note)
    answer = await once(world, world.says("bin/nvidia-smi", line() + "\n"))
    assert answer.reason is None


async def test_starts_that_cannot_be_limited_do_not_happen(world: World) -> None:
    path = world.says("bin/nvidia-smi", line() + "\n")
    world.own.rmdir()
    answer = await once(world, path)
    assert answer.reason == "unlimited"
    assert str(world.own) in str(answer.fix)
    assert world.starts == []


@pytest.mark.skipif(not usable(), reason="needs root and /dev/fuse")
async def test_a_drive_that_hangs_delays_nothing(world: World) -> None:
    """The program itself lies on the file system that answers no read."""
    with stalling(world.root / "drive") as drive:
        async with ticking() as gap:
            answer = await world.answer(world.source(drive.path, deadline_s=0.5))
        assert gap.largest_s < HELD_UP_S
        assert answer.reason == "hung"
        assert drive.waiting.is_set()
        drive.answer()
        await asyncio.to_thread(until, all_reaped, "the end of the program")


def all_reaped() -> bool:
    children.reap()
    return not children._left_behind


def peak_kib(*, anew: bool = False) -> int:
    if anew:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


async def test_endless_output_costs_no_memory_and_ends_the_program(world: World) -> None:
    path = world.program("bin/nvidia-smi", f"echo $$ >{world.root}/pid\nexec yes 'a line'")
    before_kib = peak_kib(anew=True)
    answer = await once(world, path, deadline_s=600)  # beyond a test's time limit
    assert answer.reason == "bad_output"
    assert peak_kib() - before_kib < 16 << 10
    with pytest.raises(ProcessLookupError):
        os.kill(int((world.root / "pid").read_text()), 0)


async def test_on_plain_linux_only_a_configured_program_is_started(world: World) -> None:
    world.says(EXE, line() + "\n")
    assert await world.collect(nvidia_smi_exe.create(world.context())) is None
    world.kernel(WSL2)
    assert values(await world.collect(nvidia_smi_exe.create(world.context())))["pstate"] == 8


# --- what it writes ---


def read(text: str | bytes) -> dict[str, float | str | Absent]:
    data = text.encode() if isinstance(text, str) else text
    readings = smi_output.read_csv(data, "nvidia_smi")
    return {reading.field: reading.value for reading in readings}


def refusal(text: str | bytes) -> TelemetryError:
    with pytest.raises(TelemetryError) as caught:
        read(text)
    return caught.value


def changed(column: str, cell: str) -> str:
    return line(**{column.replace(".", "__"): cell}) + "\n"


def test_every_field_arrives_in_base_units() -> None:
    fields = read(line(name='"Quadro, ""RTX"" 5000"') + "\n")
    assert set(fields) == {column.field for column in smi_output.COLUMNS} <= set(FIELDS)
    expected = {
        "name": 'Quadro, "RTX" 5000',
        "memory_total_bytes": 8188 * 2**20,
        "utilization_gpu_ratio": 0.07,
        "power_watts": 13.57,
        "clock_memory_hertz": 8001e6,
        "pstate": 8,
        "throttle_reasons": "idle",
        "fan_ratio": Absent.UNSUPPORTED,
    }
    assert {name: fields[name] for name in expected} == expected
    columns = [column.field for column in smi_output.COLUMNS]
    assert len(columns) == len(set(columns))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_encodings_and_line_ends_of_windows_change_nothing(encoding: str, end: str) -> None:
    assert read((line() + end).encode(encoding)) == read(line() + "\n")


@pytest.mark.parametrize("words", [*sorted(set(WORDS) - {"", "-", "none"}), "sensor asleep"])
def test_words_in_place_of_a_number_are_its_reason(words: str) -> None:
    bare = [words.upper()] if words in WORDS else []
    for cell in (*bare, f"[{words.title()}]"):
        data = changed("power.draw", cell).encode()
        readings = smi_output.read_csv(data, "nvidia_smi")
        power = next(reading for reading in readings if reading.field == "power_watts")
        assert (power.value, power.detail) == (WORDS.get(words, Absent.FAILED), cell)


@pytest.mark.parametrize(
    ("column", "field", "cell"),
    [
        ("memory.used", "memory_used_bytes", "18446744073709551615"),
        ("clocks.sm", "clock_sm_hertz", "-1"),
        ("power.draw", "power_watts", "nan"),
        ("pstate", "pstate", "P32"),
        ("clocks_throttle_reasons.active", "throttle_reasons", "0xffffffffffffffff"),
    ],
)
def test_a_sentinel_is_never_a_value(column: str, field: str, cell: str) -> None:
    assert read(changed(column, cell))[field] is Absent.SENTINEL


GERMAN = "NVIDIA-SMI ist fehlgeschlagen, da der NVIDIA-Treiber nicht antwortet.\r\n"


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("", "wrote nothing"),
        (b"\xff\xfe\x00\xd8\x1b[2J", "breaks off"),
        ("\n", "nvidia_smi: "),
        (GERMAN, "not the line of GPU 0"),
        (line(), "breaks off"),
        (line() + "\n" + line(index="1")[:40], "breaks off"),
        (line(count="2") + "\n", "not the line of GPU 0 of 1"),
        (line() + ", 1\n", "columns and not"),
        (line().rpartition(",")[0] + "\n", "columns and not"),
        (changed("power.draw", "13,57"), "columns and not"),
        (changed("power.draw", "13.57 W"), "not a value of power.draw"),
        (changed("power.draw", "[N/A"), "not a value of power.draw"),
        (changed("clocks_throttle_reasons.active", "idle"), "not a value of clocks_throttle"),
        (changed("pstate", "fast"), "not a value of pstate"),
        (changed("ecc.mode.current", "perhaps"), "not a value of ecc.mode.current"),
        (changed("index", "[N/A]"), "not the line of GPU 0"),
        (changed("count", "9" * 400), "not the line of GPU 0"),
        (line() + "\n\n", "not the line of GPU 0 of 2"),
        (f"{line(count='2')}\n{line(count='2')}\n", "not the line of GPU 1 of 2"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_as_a_whole(output: str | bytes, words: str) -> None:
    error = refusal(output)
    assert error.reason == "bad_output"
    assert words in str(error)
    assert escaped(str(error)) == str(error)
    assert len(str(error)) < 300
    assert refusal("No devices were found\n").reason == "no_device"  # an older one, with code 0


@given(st.integers(0, 400))
def test_an_answer_cut_anywhere_is_never_believed(at: int) -> None:
    whole = f"{line(count='2')}\n{line(count='2', index='1', temperature__gpu='61')}\n"
    readings = smi_output.read_csv(whole.encode(), "nvidia_smi")
    assert [r.value for r in readings if r.field == "temperature_celsius"] == [48, 61]
    assert [r.gpu for r in readings if r.field == "driver_version"] == [None]
    assume(at < len(whole))
    assert refusal(whole[:at]).reason == "bad_output"


@given(st.sampled_from(sorted(set(CELLS) - {"index", "count"})), st.text(max_size=60))
def test_any_text_in_a_cell_costs_nothing_or_everything(name: str, cell: str) -> None:
    before = read(line() + "\n")
    try:
        after = read(changed(name, cell))
    except TelemetryError as refused:
        event(refused.reason)
        return
    field = next(column.field for column in smi_output.COLUMNS if column.name == name)
    value = after.pop(field)
    del before[field]
    assert after == before
    if not isinstance(value, Absent):
        assert isinstance(value, str) is FIELDS[field].text
