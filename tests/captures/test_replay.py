"""A replayed machine is the recorded one: gpud records it again and finds no difference."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gpud.agent.capture.document import BUILT, RECORDED, Call, Nvml, Program, decode
from gpud.agent.capture.scrub import Identity, scrubbed
from gpud.core.sample import Failure, Inventory, Reason
from tests.captures import cuda_script, nvml_script
from tests.captures.nvml_script import CannotReplay
from tests.captures.replay import MACHINES, load, names, put_program, replayed
from tests.e2e.program import QUICK

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.agent.capture.document import Capture
    from tests.captures.replay import Replayed

NOBODY = pwd.getpwnam("nobody").pw_uid
GPUD = (sys.executable, "-I", "-m", "gpud")
SOON = {"linux-mig", "wsl2-desktop", "wsl2-driver-not-loaded"}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it makes devices")


def recorded(machine: Replayed, folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Run the real ``gpud capture`` on a replayed machine."""
    sections = {"dockerd": QUICK["dockerd"], **machine.sections}
    lines = [f'sysroot = "{machine.sysroot}"']
    for name, values in sections.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    config = folder / "gpud.toml"
    config.write_text("\n".join(lines) + "\n")
    folder.chmod(0o755)
    return subprocess.run(
        [*GPUD, "--home", folder / "home", "--config", config, "capture", *words],
        capture_output=True,
        check=False,
        timeout=60,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "SUDO_UID": str(NOBODY)},
    )


def comparable(capture: Capture, machine: Replayed) -> Capture:
    """Leave out what tells of the recording, and what differs where there is a test around it.

    WSL's own library opens the one in the driver store; in a replay the one is a link to the other.
    """
    nvml, cuda = capture.nvml, capture.cuda
    if nvml.library is not None:
        nvml = replace(nvml, library=machine.real(nvml.library))
    if cuda.library is not None:
        cuda = replace(cuda, library=machine.real(cuda.library))
    if cuda.failure is not None:  # advice for a configured path, for a container
        cuda = replace(cuda, failure=replace(cuda.failure, advice=None))
    programs: dict[str, Program | None] = {
        name: said for name, said in capture.programs.items() if said is not None
    }
    return replace(
        capture,
        nvml=nvml,
        gpud="",
        origin="",
        machine="",
        doctor=None,
        status=None,
        cuda=cuda,
        programs=programs,
    )


@needs_root
@pytest.mark.parametrize(
    "name", [n if n in SOON else pytest.param(n, marks=pytest.mark.soak) for n in names()]
)
def test_a_machine_recorded_again_is_the_same(name: str, tmp_path: Path) -> None:
    capture = load(name)
    with replayed(capture, tmp_path) as machine:
        ran = recorded(machine, tmp_path, "-o", "-", "--with-programs")
        assert ran.returncode == 0, ran.stderr.decode()
        made = decode(ran.stdout)
        assert made.unanswered == {}
        assert comparable(made, machine) == comparable(capture, machine)


@pytest.mark.parametrize("name", names())
def test_a_machine_is_kept_in_its_one_form_and_names_nobody(name: str) -> None:
    capture, text = load(name), (MACHINES / f"{name}.json").read_text()
    # Not what gpud of today writes: a later one may know keys that a recording has not.
    again = json.dumps(json.loads(text), sort_keys=True, indent=2, ensure_ascii=False)
    assert text == f"{again}\n"
    assert scrubbed(capture, Identity()) == (capture, {})
    assert capture.origin == RECORDED or capture.origin.startswith(BUILT)


def nvml(*calls: Call) -> Nvml:
    return Nvml(library="/usr/lib/wsl/lib/libnvidia-ml.so.1", calls=calls)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (Call(call="nvmlDeviceGetBrand", gpu=0, value=2), "does not know nvmlDeviceGetBrand"),
        (Call(call="nvmlDeviceGetClockInfo", gpu=0, arguments=(7,), value=1), r"with \(7,\)"),
        (Call(call="nvmlSystemGetHicVersion", value=1), "does not know nvmlSystemGetHicVersion"),
        (Call(call="nvmlDeviceGetName", gpu=0, code=None, error="ValueError"), "ValueError"),
        (Call(call="nvmlDeviceGetTemperatureV", gpu=0, arguments=(0,), value=50), "another call"),
        (
            Call(call="nvmlDeviceGetTemperature", gpu=0, arguments=(0,), code=999),
            "with others it does not",
        ),
        (
            Call(call="nvmlDeviceGetMemoryInfo", gpu=0, value={"total": 9, "free": 1, "used": 1}),
            "1 bytes used, and 8",
        ),
    ],
)
def test_a_call_that_cannot_be_replayed_is_refused_by_name(call: Call, words: str) -> None:
    memory = {"version": 33554472, "total": 9, "reserved": 0, "free": 1, "used": 8}
    known = (
        Call(call="nvmlDeviceGetTemperature", gpu=0, arguments=(0,), value=40),
        Call(call="nvmlDeviceGetMemoryInfo_v2", gpu=0, arguments=(33554472,), value=memory),
    )
    nvml_script.script(nvml(*known))
    with pytest.raises(CannotReplay, match=words):
        nvml_script.script(nvml(*known, call))


@pytest.mark.parametrize(
    "failure",
    [Failure(Reason.HUNG, "no answer within 5 s"), Failure(Reason.CRASHED, "ended with -11")],
)
def test_cuda_that_did_not_answer_cannot_be_replayed(failure: Failure) -> None:
    with pytest.raises(CannotReplay, match=failure.detail):
        cuda_script.script(Inventory(failure=failure), {})


@needs_root
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"nvml": Nvml(error="no answer within 5 s")}, "no answer within 5 s"),
        (
            {"programs": {"cmd.exe": Program(arguments=(), code=None, error="no session")}},
            "no session",
        ),
    ],
)
def test_half_a_machine_is_not_replayed(
    changed: dict[str, Any], words: str, tmp_path: Path
) -> None:
    capture = replace(load("wsl2-no-gpu"), **changed)
    with pytest.raises(CannotReplay, match=words), replayed(capture, tmp_path):
        pass


def test_a_sentinel_is_replayed_with_all_its_bits() -> None:
    call = Call(call="nvmlDeviceGetTotalEnergyConsumption", gpu=0, value=2**64 - 1)
    assert "device.0.energy_mj 18446744073709551615" in nvml_script.script(nvml(call))


def test_what_a_gpu_refuses_it_refuses_alone() -> None:
    handles = [Call(call=nvml_script.HANDLE, arguments=(n,), code=15 * n) for n in (0, 1)]
    power = Call(call="nvmlDeviceGetPowerUsage", gpu=0, code=999)
    fan = Call(call="nvmlDeviceGetFanSpeed", gpu=0, code=3)
    lines = nvml_script.script(nvml(*handles, power, fan)).splitlines()
    assert lines == [
        "device.0.fan_speed_percent none",
        "device.0.fail nvmlDeviceGetPowerUsage 999",
        "device.1.fail nvmlDeviceGetHandleByIndex_v2 15",
    ]


def test_a_program_gives_recorded_columns_in_the_order_asked_for_and_refuses_others(
    tmp_path: Path,
) -> None:
    said = Program(
        arguments=("--query-gpu=index,count,name,power.draw", "--format=csv,noheader,nounits"),
        code=0,
        stdout="0, 1, NVIDIA T4, 9.50\r\n",
    )
    put_program("/bin/nvidia-smi", said, tmp_path)

    def ask(*arguments: str) -> tuple[int, bytes]:
        command = [str(tmp_path / "bin/nvidia-smi"), *arguments]
        ran = subprocess.run(command, capture_output=True, check=False)
        return ran.returncode, ran.stdout

    form = said.arguments[1]
    assert ask("--query-gpu=power.draw,index", form) == (0, b"9.50, 0\r\n")
    refused = b'Field "fan.speed" is not a valid field to query.\n\n'
    assert ask("--query-gpu=index,fan.speed", form) == (2, refused)
    assert ask("-q") == (99, b"")
