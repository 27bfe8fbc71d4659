"""nvidia-smi's answers: read as a whole or refused as a whole."""

from __future__ import annotations

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from gpud.agent.telemetry import smi_output
from gpud.agent.telemetry.fields import FIELDS, WORDS, FieldKind
from gpud.core.errors import TelemetryError
from gpud.core.sample import Absent
from gpud.core.text import escaped
from tests.agent.telemetry.smi_world import CELLS, line


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
        assert isinstance(value, str) is (FIELDS[field].kind is FieldKind.TEXT)
