"""A replayed machine is the recorded one: gpud records it again and finds no difference."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from gpud.agent.capture.record import RECORDED, RecordedCall, RecordedNvml, RecordedProgram
from gpud.agent.capture.scrub import scrubbed
from gpud.agent.telemetry import smi_output
from gpud.core.sample import Failure, Inventory, Reason
from tests.captures.nvml_script import CannotReplay
from tests.captures.replay import MACHINES, decode, load, names, replayed
from tests.e2e.program import QUICK

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.agent.capture.record import Capture
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


def asked(program: RecordedProgram) -> RecordedProgram:
    """Keep the columns of nvidia-smi that are asked for now; a recording may have more."""
    now = smi_output.ARGUMENTS[0]
    if not program.arguments or not program.arguments[0].startswith(now):
        return program
    n_columns = len(now.split(","))
    rows = [", ".join(line.split(", ")[:n_columns]) for line in program.stdout.split("\n")]
    return msgspec.structs.replace(
        program,
        arguments=(now, *program.arguments[1:]),
        stdout="\n".join(row.rstrip("\r") for row in rows),
    )


def comparable(capture: Capture, machine: Replayed) -> Capture:
    """Leave out what tells of the recording, and what differs where there is a test around it.

    WSL's own library opens the one in the driver store; in a replay the one is a link to the other.
    """
    nvml, cuda = capture.nvml, capture.cuda
    if nvml.library is not None:
        nvml = msgspec.structs.replace(nvml, library=machine.real(nvml.library))
    if cuda.library is not None:
        cuda = replace(cuda, library=machine.real(cuda.library))
    if cuda.failure is not None:  # advice for a configured path, for a container
        cuda = replace(cuda, failure=replace(cuda.failure, advice=None))
    programs: dict[str, RecordedProgram | None] = {
        name: asked(said) for name, said in capture.programs.items() if said is not None
    }
    return msgspec.structs.replace(
        capture,
        nvml=nvml,
        gpud="",
        origin="",
        machine="",
        known_faults={},
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
    document = msgspec.json.decode(msgspec.json.encode(capture))
    assert scrubbed(document) == (document, {})
    assert capture.origin == RECORDED or capture.origin.startswith("built: ")


@needs_root
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"nvml": RecordedNvml(error="no answer within 5 s")}, "no answer within 5 s"),
        ({"cuda": Inventory(failure=Failure(Reason.CRASHED, "ended with -11"))}, "ended with -11"),
        ({"files": {"/proc/../../etc/shadow": "x"}}, "leaves the tree"),
        (
            {
                "nvml": RecordedNvml(
                    calls=(RecordedCall(call="nvmlDeviceGetBrand", gpu=0, value=2),)
                )
            },
            "does not know nvmlDeviceGetBrand",
        ),
        (
            {"programs": {"cmd.exe": RecordedProgram(arguments=(), code=None, error="no session")}},
            "no session",
        ),
    ],
)
def test_half_a_machine_is_not_replayed(
    changed: dict[str, Any], words: str, tmp_path: Path
) -> None:
    capture = msgspec.structs.replace(load("wsl2-no-gpu"), **changed)
    with pytest.raises(CannotReplay, match=words), replayed(capture, tmp_path):
        pass
