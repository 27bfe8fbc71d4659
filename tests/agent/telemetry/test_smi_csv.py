"""nvidia-smi's answers: read as a whole or refused as a whole, and never half believed."""

from __future__ import annotations

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st
from pynvml import NVML_AGGREGATE_ECC

from gpud.agent.telemetry import smi_csv
from gpud.core.errors import TelemetryError
from gpud.core.fields import FIELDS, WORDS, FieldKind
from gpud.core.sample import Absent, Reading
from gpud.core.text import escaped
from tests.agent.telemetry.smi_world import CELLS, line, names
from tests.captures.replay import load

NONE: frozenset[str] = frozenset()


def read(text: str | bytes, left_out: frozenset[str] = NONE) -> dict[str, float | str | Absent]:
    data = text.encode() if isinstance(text, str) else text
    found = smi_csv.read(data, "nvidia_smi", left_out)
    assert all(reading.gpu == (None if FIELDS[reading.field].machine else 0) for reading in found)
    return {reading.field: reading.value for reading in found}


def refusal(text: str | bytes) -> TelemetryError:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(TelemetryError) as caught:
        smi_csv.read(data, "nvidia_smi")
    return caught.value


def test_every_field_arrives_in_base_units() -> None:
    fields = read(line() + "\n")
    assert set(fields) == smi_csv.OFFERED
    assert fields["memory_total_bytes"] == 8188 * 2**20
    assert fields["utilization_gpu_ratio"] == 0.07
    assert fields["power_watts"] == 13.57
    assert fields["clock_memory_hertz"] == 8001e6
    assert fields["pstate"] == 8
    assert fields["throttle_reasons"] == "idle"
    assert fields["fan_ratio"] is Absent.UNSUPPORTED
    assert fields["compute_capability"] == "8.9"


def test_only_fields_of_the_catalogue_are_offered_and_each_is_asked_once() -> None:
    assert set(FIELDS) >= smi_csv.OFFERED
    asked = [column.field for column in smi_csv.columns()]
    assert len(asked) == len(set(asked)) == len(smi_csv.OFFERED)


def test_errors_are_counted_as_nvml_counts_them() -> None:
    """Since the board was made; what is since the boot alone would look like a counter reset."""
    capture = load("linux-data-centre")
    of_nvml = {
        call.arguments[0]: call.value
        for call in capture.nvml.calls
        if call.call == "nvmlDeviceGetTotalEccErrors" and call.arguments[1] == NVML_AGGREGATE_ECC
    }
    cells = {f"ecc.errors.{kind}.volatile.total": "1" for kind in ("corrected", "uncorrected")}
    for kind, number in (("corrected", 0), ("uncorrected", 1)):
        cells[f"ecc.errors.{kind}.aggregate.total"] = str(of_nvml[number])
    fields = read(line(**{name.replace(".", "__"): cell for name, cell in cells.items()}) + "\n")
    assert [fields["ecc_corrected_total"], fields["ecc_uncorrected_total"]] == [3, 0]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_windows_does_to_a_text_changes_nothing(encoding: str, end: str) -> None:
    assert read((line() + end).encode(encoding)) == read(line() + "\n")


def test_two_gpus_are_told_apart_and_the_driver_comes_once() -> None:
    first = line(count="2")
    second = line(index="1", count="2", uuid="GPU-2", temperature__gpu="61")
    found = smi_csv.read(f"{first}\n{second}\n".encode(), "nvidia_smi")
    assert [r.value for r in found if r.field == "temperature_celsius"] == [48, 61]
    drivers = [r for r in found if r.field == "driver_version"]
    assert drivers == [Reading(None, "driver_version", "572.16", "nvidia_smi")]


def test_a_name_in_quotes_may_hold_a_comma() -> None:
    assert read(line(name='"Quadro, ""RTX"" 5000"') + "\n")["name"] == 'Quadro, "RTX" 5000'


@pytest.mark.parametrize("words", [*sorted(set(WORDS) - {"", "-", "none"}), "sensor asleep"])
def test_words_in_place_of_a_number_are_its_reason(words: str) -> None:
    bare = [words.upper()] if words in WORDS else []
    for cell in (*bare, f"[{words.title()}]"):
        readings = smi_csv.read((line(power__draw=cell) + "\n").encode(), "nvidia_smi")
        power = next(reading for reading in readings if reading.field == "power_watts")
        assert power.value is WORDS.get(words, Absent.FAILED)
        assert power.detail == cell


@pytest.mark.parametrize(
    ("column", "field", "cell"),
    [
        ("memory.used", "memory_used_bytes", "18446744073709551615"),
        ("memory.used", "memory_used_bytes", "9223372036854775794"),
        ("clocks.sm", "clock_sm_hertz", "4294967295"),
        ("clocks.sm", "clock_sm_hertz", "-1"),
        ("power.draw", "power_watts", "4294967.29"),
        ("utilization.gpu", "utilization_gpu_ratio", "4294967295"),
        ("temperature.gpu", "temperature_celsius", "2147483647"),
        ("pstate", "pstate", "P32"),
        ("clocks_throttle_reasons.active", "throttle_reasons", "0xffffffffffffffff"),
    ],
)
def test_a_sentinel_is_never_a_value(column: str, field: str, cell: str) -> None:
    assert read(line(**{column.replace(".", "__"): cell}) + "\n")[field] is Absent.SENTINEL


OTHER_DRIVER = line(count="2", index="1", uuid="GPU-2", driver_version="1.0")
GERMAN = "NVIDIA-SMI ist fehlgeschlagen, da der NVIDIA-Treiber nicht antwortet.\r\n"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("", "said nothing"),
        ("\n", "0 columns instead of"),
        (GERMAN, "2 columns instead of"),
        ("NVIDIA-SMI has failed because it couldn't communicate\n", "1 columns instead of"),
        (line(), "breaks off"),
        (line() + "\n" + line(index="1")[:40], "breaks off"),
        (line(count="2") + "\n", "1 lines for 2 GPUs"),
        (line() + ", 1\n", "columns instead of"),
        (line().rpartition(",")[0] + "\n", "columns instead of"),
        (line(power__draw="13,57") + "\n", "columns instead of"),
        (line(power__draw='"13,57"') + "\n", "power.draw is no number"),
        (line(power__draw="13.57 W") + "\n", "power.draw is no number"),
        (line(power__draw="1e3") + "\n", "power.draw is no number"),
        (line(power__draw="١٣") + "\n", "power.draw is no number"),
        (line(memory__used="1" * 30) + "\n", "memory.used is no number"),
        (line(clocks_throttle_reasons__active="4") + "\n", "is no bit mask"),
        (line(pstate="0") + "\n", "pstate is no performance state"),
        (line(mig__mode__current="perhaps") + "\n", "neither Enabled nor Disabled"),
        (line(index="[N/A]") + "\n", "index is no number"),
        (line(index="x") + "\n", "index is no number"),
        (line(index="²") + "\n", "index is no number"),
        (line(index="-1") + "\n", "index is no number"),
        (line(index="") + "\n", "index is no number"),
        (line(power__draw="[N/A") + "\n", "power.draw is no number"),
        (line(power__draw="N/A]") + "\n", "power.draw is no number"),
        (line(count="9" * 400) + "\n", "count is no number"),
        (line(name='"unfinished') + "\n", "no line of CSV"),
        (line(name="a\0b") + "\n", "columns instead of"),
        (line(name="a\x1b[2Jb") + "\n", "columns instead of"),
        (line() + "\n\n", "2 lines"),
        (f"{line(count='2')}\n{line(count='2')}\n", "comes twice"),
        (f"{line(count='2')}\n{line(count='2', index='1')}\n", "one UUID comes twice"),
        (f"{line(count='2')}\n{OTHER_DRIVER}\n", "driver_version comes twice"),
        ((line() + "\n") * 10_000, "10000 lines, more than 128 GPUs"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_whole_by_name(said: str, words: str) -> None:
    error = refusal(said)
    assert error.reason == "bad_output"
    assert words in str(error)
    assert escaped(str(error)) == str(error)
    assert len(str(error)) < 300


def test_an_older_one_that_finds_no_gpu_ends_well_and_says_so() -> None:
    assert refusal("No devices were found\n").reason == "no_device"


def test_a_refused_name_is_left_out_and_told_as_what_the_driver_does_not_offer() -> None:
    refused = smi_csv.refused('Field "clocks.video" is not a valid field to query.\n')
    assert refused == "clocks.video"
    left_out = smi_csv.without(NONE, refused)
    assert "clocks.video" not in names(left_out)
    found = smi_csv.read((line(left_out) + "\n").encode(), "nvidia_smi", left_out)
    video = next(reading for reading in found if reading.field == "clock_video_hertz")
    assert video.value is Absent.UNSUPPORTED
    assert video.detail == "this nvidia-smi does not know clocks.video"
    assert {reading.field for reading in found} == smi_csv.OFFERED


def test_a_driver_that_does_not_know_a_newer_name_is_asked_for_none_behind_it() -> None:
    left_out = smi_csv.without(NONE, "compute_cap")
    asked = names(left_out)
    assert "mig.mode.current" in asked
    assert not {"compute_cap", "memory.reserved", "utilization.decoder"} & set(asked)


def test_a_renamed_column_is_asked_by_its_other_name_when_the_first_is_refused() -> None:
    assert "clocks_event_reasons.active" not in names()
    left_out = smi_csv.without(NONE, "clocks_throttle_reasons.active")
    assert "clocks_event_reasons.active" in names(left_out)
    assert read(line(left_out) + "\n", left_out)["throttle_reasons"] == "idle"
    left_out = smi_csv.without(left_out, "clocks_event_reasons.active")
    assert read(line(left_out) + "\n", left_out)["throttle_reasons"] is Absent.UNSUPPORTED


@given(st.binary(max_size=2000))
def test_random_bytes_are_refused_and_the_reason_can_be_shown(data: bytes) -> None:
    with pytest.raises(TelemetryError) as caught:
        smi_csv.read(data, "nvidia_smi")
    assert caught.value.reason in {"bad_output", "no_device"}
    assert escaped(str(caught.value)) == str(caught.value)


@given(st.sampled_from(sorted(set(CELLS) - {"index", "count"})), st.text(max_size=60))
def test_one_cell_of_whatever_costs_nothing_or_everything(name: str, cell: str) -> None:
    assume(name in names())
    before = read(line() + "\n")
    try:
        after = read(line(**{name.replace(".", "__"): cell}) + "\n")
    except TelemetryError as refused:
        event(refused.reason)
        return
    field = next(column.field for column in smi_csv.COLUMNS if column.name == name)
    assert {f: v for f, v in after.items() if f != field} == {
        f: v for f, v in before.items() if f != field
    }
    value = after[field]
    if not isinstance(value, Absent):
        assert isinstance(value, str) is (FIELDS[field].kind is FieldKind.TEXT)


@given(st.integers(0, 400))
def test_an_answer_cut_anywhere_is_never_believed(at: int) -> None:
    whole = f"{line(count='2')}\n{line(count='2', index='1', uuid='GPU-2')}\n"
    assume(at < len(whole))
    assert refusal(whole[:at]).reason == "bad_output"
