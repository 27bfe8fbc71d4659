"""``gpud status`` of GPUs: one card each, what is known of it, and what changed."""

from __future__ import annotations

import re

import pytest

from gpud.agent.state.status import document as made
from gpud.agent.telemetry.fields import FIELDS
from gpud.core.sample import Absent, Reading
from gpud.show import document as reading
from gpud.show import gpu_table
from tests import snapshots
from tests.statuses import CELL, NOW_S, answered, cells, full, line_with, read, shown


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


@pytest.mark.parametrize(
    ("reasons", "words"),
    [
        ("idle", "clocks low: idle"),
        ("none", "slowed by nothing"),
        ("idle,thermal", "slowed by thermal"),
        (Absent.UNSUPPORTED, "slowed by: not known"),
    ],
)
def test_an_idle_gpu_is_not_called_slowed(reasons: str | Absent, words: str) -> None:
    document = answered(read("throttle_reasons", reasons), read("uuid", "GPU-1"))
    card = line_with(shown(document), words)
    assert card.endswith(words)


@pytest.mark.parametrize("reason", [reason for reason in Absent if reason in gpu_table.REASONS])
@pytest.mark.parametrize("heading", [heading for heading, fields in CELL.items() if fields])
def test_what_is_unknown_is_a_dash_and_never_nought(heading: str, reason: Absent) -> None:
    fields = CELL[heading] or ()
    document = answered(*(read(field, reason) for field in fields), read("uuid", "GPU-1"))
    assert cells(document)[heading] == "-"
    why = gpu_table.missing(reading.read(document)).split("; ")[0]
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
    assert "PCIe" not in gpu_table.missing(reading.read(answered(off)))
    assert "PCIe" in gpu_table.missing(reading.read(answered(read(traffic, Absent.UNSUPPORTED))))


def test_what_only_one_of_two_gpus_lacks_is_told_with_its_number() -> None:
    document = answered(
        *(read("fan_ratio", Absent.UNSUPPORTED, gpu) for gpu in (0, 1)),
        read("power_watts", 20.0, 0),
        read("power_watts", Absent.NOT_PERMITTED, 1),
    )
    told = gpu_table.missing(reading.read(document)).split("; ")
    assert told[:2] == ["not supported here: fan", "not permitted: power (GPU 1)"]


def test_what_no_source_so_much_as_names_is_told_too() -> None:
    document = answered(read("name", "RTX"), read("memory_total_bytes", 8e9), source="cuda")
    told = gpu_table.missing(reading.read(document))
    assert told.startswith("no source tells: clock memory, clock SM, memory used, power, ")
    assert "memory total" not in told
    whole = [read(field, Absent.UNSUPPORTED) for field in gpu_table.IN_CELLS]
    assert "no source" not in gpu_table.missing(reading.read(answered(*whole)))


@pytest.mark.parametrize("field", [name for name, field in FIELDS.items() if not field.machine])
def test_every_field_has_a_word_a_person_understands(field: str) -> None:
    said = gpu_table.missing(reading.read(answered(read(field, Absent.FAILED))))
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
    assert (
        gpu_table.versions(reading.read(document))
        == "driver 595.71 (WSL side 595.45.03), CUDA 13.1"
    )
    document["platform"] = {"wsl": ""}
    assert gpu_table.versions(reading.read(document)) == "driver 595.71, CUDA 13.1"
    assert (
        gpu_table.versions(reading.read(answered(read("name", "RTX"))))
        == "driver not known, CUDA not known"
    )


@pytest.mark.parametrize(
    ("driver", "nvml", "words"),
    [
        ("572.16", None, "driver 572.16, CUDA 12.8"),
        ("572.16", "572.16", "driver 572.16, CUDA 12.8"),
        (None, "570.86.09", "driver not known, CUDA 12.8"),
    ],
)
def test_one_version_has_no_other_side_and_cuda_may_be_libcudas_word(
    driver: str | None, nvml: str | None, words: str
) -> None:
    told = {"driver_version": driver, "nvml_version": nvml}
    document = answered(*(read(field, text, None) for field, text in told.items() if text))
    document["platform"] = {"wsl": "2"}
    document["cuda"] = {"cuda_version": "12.8", "devices": []}
    assert gpu_table.versions(reading.read(document)) == words


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
