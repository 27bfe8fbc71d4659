"""A recorded machine as a document: one form, nothing unknown, nothing that leaves its tree."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gpud.agent.capture.document import (
    BUILT,
    SCHEMA_VERSION,
    Call,
    Capture,
    Nvml,
    Program,
    decode,
    encode,
)
from gpud.core.errors import WireError
from gpud.core.sample import Device, Failure, Inventory, Reason

UUID = "GPU-6d0c5f2e-8a41-4b7d-9e13-000000000000"
MACHINE = Capture(
    schema_version=SCHEMA_VERSION,
    gpud="0.1.0",
    origin=f"{BUILT}NVIDIA's guide to CUDA on WSL",
    machine="a desktop",
    files={"/proc/sys/kernel/osrelease": "5.15.167.4-microsoft-standard-WSL2\n"},
    devices=("/dev/dxg",),
    driver_store={"nvltwi.inf_amd64_08cf6d985207979a": ("libcuda.so.1.1", "nvidia-smi")},
    pci=("0x10de",),
    nvml=Nvml(
        library="/usr/lib/wsl/lib/libnvidia-ml.so.1",
        missing=("nvmlDeviceGetFanSpeed",),
        calls=(
            Call(call="nvmlInit_v2"),
            Call(call="nvmlDeviceGetUUID", gpu=0, value=UUID),
            Call(call="nvmlDeviceGetTotalEnergyConsumption", gpu=0, value=2**64 - 1),
            Call(call="nvmlDeviceGetMemoryInfo", gpu=0, value={"total": 8 << 30, "free": 7 << 30}),
            Call(call="nvmlDeviceGetPowerUsage", gpu=0, code=3),
        ),
    ),
    programs={
        "nvidia-smi.exe": Program(arguments=("-L",), code=0, stdout=f"GPU 0 (UUID: {UUID})\r\n"),
        "wslinfo": None,
    },
    cuda=Inventory(
        (Device(0, UUID, "GeForce", "0000:01:00.0", "8.9", 46, 1 << 20, 8 << 30),), "12.8"
    ),
    unanswered={"doctor": "no answer within 5 s"},
    status={"state": "ok", "counters": [1, 2]},
)


def document(**changed: Any) -> bytes:
    return json.dumps({**json.loads(encode(MACHINE)), **changed}).encode()


def test_a_capture_comes_back_as_it_was() -> None:
    assert decode(encode(MACHINE)) == MACHINE
    failed = replace(MACHINE, cuda=Inventory(failure=Failure(Reason.NO_DEVICE, "no GPU")))
    assert decode(encode(failed)) == failed


def test_there_is_one_form_and_any_json_tool_makes_it() -> None:
    text = encode(MACHINE).decode()
    assert json.dumps(json.loads(text), sort_keys=True, indent=2, ensure_ascii=False) + "\n" == text


def test_raw_values_keep_all_their_bits() -> None:
    calls = decode(encode(MACHINE)).nvml.calls
    assert calls[2].value == 18446744073709551615


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"colour": "green"}, "'colour'"),
        ({"nvml": {"libary": None}}, "'nvml.libary'"),
        ({"nvml": {"calls": [{"call": "a"}, {"call": "b", "val": 1}]}}, "'nvml.calls[1].val'"),
        ({"cuda": {"devises": []}}, "'cuda.devises'"),
        ({"programs": {"nvidia-smi": {"arguments": [], "code": 0, "out": ""}}}, "nvidia-smi.out"),
    ],
)
def test_an_unknown_key_is_refused_by_name(changed: dict[str, Any], named: str) -> None:
    with pytest.raises(WireError, match="unknown key") as refused:
        decode(document(**changed))
    assert named in str(refused.value)


@pytest.mark.parametrize(
    "changed",
    [
        {"files": {"/proc/../../etc/shadow": "x"}},
        {"files": {"etc/os-release": "x"}},
        {"files": {"/etc//os-release": "x"}},
        {"files": {"/etc/.": "x"}},
        {"files": {"/etc/os\0release": "x"}},
        {"devices": ["/dev/../sda"]},
        {"driver_store": {"..": []}},
        {"driver_store": {"nv_dispi.inf": ["../libcuda.so.1.1"]}},
        {"programs": {"rm": None}},
        {"nvml": {"library": "../libnvidia-ml.so.1"}},
        {"cuda": {"library": "/usr/../../libcuda.so.1"}},
    ],
)
def test_nothing_is_laid_out_outside_of_its_tree(changed: dict[str, Any]) -> None:
    with pytest.raises(WireError, match="cannot be a name there"):
        decode(document(**changed))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "not a capture"),
        (b"\xff\xfe", "not a capture"),
        (b"[" * 100_000, "not a capture"),
        (b"[]", "Expected `object`"),
        (b"{}", "missing required field"),
        (document(schema_version=2), "of schema 2, not 1"),
        (document(machine=7), "machine"),
        (document(nvml={"calls": [{"call": "a", "code": "3"}]}), "calls"),
        (b" " * (8 << 20) + b"{}", "longer than"),
    ],
)
def test_what_is_no_capture_is_refused_and_said_why(text: bytes, says: str) -> None:
    with pytest.raises(WireError, match=says):
        decode(text)


def test_a_dotted_name_that_leads_nowhere_else_is_a_name() -> None:
    held = {"/etc/..wsl.conf": "", "/mnt/c/Users/Ada Lovelace/.wslconfig": ""}
    assert decode(document(files=held)).files == held
    assert msgspec.json.decode(encode(MACHINE))["files"] != held
