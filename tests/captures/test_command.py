"""``gpud capture`` as a person runs it: what it writes, what it takes out, what it waits for."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpud import gpu_lock, processes
from gpud.core.settings import NVML_LOCK, Settings
from gpud.verbs import capture
from tests.captures.replay import load, replayed
from tests.captures.test_replay import PERSON, needs_root, recorded, settings
from tests.standins.build import rewrite_script

UUID = "6d0c5f2e-8a41-4b7d-9e13-2c5f00c0ffee"
KERNEL = "/proc/sys/kernel/osrelease"


def test_file_is_named_after_the_moment_and_belongs_to_its_owner_alone(tmp_path: Path) -> None:
    ran = recorded(tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "")
    (made,) = tmp_path.rglob("gpud-capture-*.json")
    assert re.fullmatch(r"gpud-capture-\d{8}-\d{6}\.json", made.name)
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    text = made.read_text()
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"
    assert f"{made.name} is yours: read it before you share it" in ran.stderr
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("mine.json", "mine.json is there already"),
        ("nowhere/mine.json", "cannot write nowhere/mine.json: No such file or directory"),
    ],
)
def test_file_that_cannot_be_made_is_an_error(tmp_path: Path, output: str, words: str) -> None:
    mine = tmp_path / "out/mine.json"
    mine.parent.mkdir()
    mine.write_text("mine")
    ran = recorded(tmp_path, "-o", output)
    assert ran.returncode == 1
    assert f"gpud: {words}\n  fix: " in ran.stderr
    assert mine.read_text() == "mine"


@needs_root
def test_what_names_a_machine_is_replaced_alike_everywhere(tmp_path: Path) -> None:
    text = msgspec.json.encode(load("wsl2-desktop")).decode()
    named = msgspec.json.decode(
        text.replace("00000000-0000-4000-8000-000000000001", UUID), type=type(load("wsl2-desktop"))
    )
    files = {**named.files, "/etc/os-release": f'PRETTY_NAME="Debian of {PERSON}"\n'}
    with replayed(msgspec.structs.replace(named, files=files), tmp_path) as machine:
        settings(machine, tmp_path)
        ran = recorded(tmp_path, "-o", "-")
    assert UUID not in ran.stdout.lower()
    assert PERSON.lower() not in ran.stdout.lower()
    made = json.loads(ran.stdout)
    stand = "GPU-00000000-0000-4000-8000-000000000001"
    assert stand in [call["value"] for call in made["nvml"]["calls"]]
    faults = [check for check in made["doctor"]["checks"] if check["name"] == "known_issues"]
    assert "wsl-12476-hmgrtable-panic" in faults[0]["evidence"]
    assert "UUIDs (1)" in ran.stderr


@needs_root
def test_nvml_that_hangs_is_left_out_and_the_rest_is_recorded(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    fifo.chmod(0o666)
    with replayed(load("wsl2-desktop"), tmp_path) as machine:
        library = (machine.sysroot / "usr/lib/wsl/lib/libnvidia-ml.so.1").resolve()
        rewrite_script(library, f"stall nvmlInitWithFlags {fifo}\n")
        settings(machine, tmp_path)
        ran = recorded(tmp_path, "-o", "-", deadline_s=5.0)
        fifo.write_text("the driver returns: those that were left alone end")
    assert ran.returncode == 0, ran.stderr
    made = json.loads(ran.stdout)
    assert made["unanswered"]["nvml"] == "no answer within 5 s"
    assert made["nvml"] is None
    assert made["files"][KERNEL].startswith("5.15")
    assert "no answer from nvml: no answer within 5 s" in ran.stderr


@needs_root
def test_root_is_refused(tmp_path: Path) -> None:
    line = [sys.executable, "-I", "-m", "gpud", "--home", str(tmp_path / "home"), "capture"]
    ran = subprocess.run(line, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ran.returncode == 1
    assert "gpud capture does not run as root\n  fix: " in ran.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("status", "asked"),
    [
        *(({"breaker": {"state": state}}, False) for state in ("open", "half_open", "stuck")),
        *(
            ({"telemetry": {"sources": {"nvml": {"reason": reason}}}}, False)
            for reason in ("hung", "stuck")
        ),
        ({"breaker": {"state": "closed"}}, True),
        ({"telemetry": {"sources": {"nvml": {"reason": "failed"}}}}, True),
        ({"health": "of another release"}, True),
    ],
)
def test_driver_that_a_running_gpud_has_seen_hang_is_not_asked(
    status: dict[str, Any], *, asked: bool
) -> None:
    assert (capture.hang_of(Settings(), {"started_s": 1.0} | status) is None) is asked


def test_nvml_is_not_asked_beside_a_helper_that_stays_in_it(tmp_path: Path) -> None:
    of_home = Settings(home=str(tmp_path))
    path = Path(of_home.run_dir, "agent", NVML_LOCK)
    path.parent.mkdir(parents=True)
    fd = gpu_lock.open_lock(path)
    assert capture.hang_of(of_home, None) is None
    assert gpu_lock.take_lock(fd)
    gpu_lock.note_child(fd, processes.ref(os.getpid()), 60.0, "nvml")
    assert f"process {os.getpid()} (nvml)" in str(capture.hang_of(of_home, None))
    os.close(fd)
