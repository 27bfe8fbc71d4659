"""``gpud capture`` as a person runs it: what it writes, what it takes out, what it waits for."""

from __future__ import annotations

import json
import os
import pwd
import re
import stat
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpud.agent.capture import command, record
from gpud.core.capture import decode, encode
from gpud.core.errors import GpudError
from gpud.core.sample import Reason
from tests.captures.replay import load, replayed
from tests.captures.test_replay import GPUD, needs_root, recorded
from tests.e2e.program import as_nobody
from tests.standins.build import rewrite_script
from tests.term.windows import window

if TYPE_CHECKING:
    from pathlib import Path

UUID = "6d0c5f2e-8a41-4b7d-9e13-2c5f00c0ffee"
PERSON = "Lovelace"


def capture(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run it on the machine that the tests run on."""
    return subprocess.run(
        [*GPUD, "--home", str(folder / "home"), "capture", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **environ},
    )


def test_the_file_is_named_after_the_moment_and_what_it_is_is_said(tmp_path: Path) -> None:
    ran = capture(tmp_path, USER=PERSON)
    assert (ran.returncode, ran.stdout) == (0, "")
    (made,) = tmp_path.glob("gpud-capture-*.json")
    assert re.fullmatch(r"gpud-capture-\d{8}-\d{6}\.json", made.name)
    document = decode(made.read_bytes())
    assert PERSON.lower() not in made.read_text().lower()
    assert document.origin == "recorded"
    assert f"recorded: {document.machine}" in ran.stderr
    assert "replaced by stand-ins:" in ran.stderr
    assert "nvidia-smi was not started" in ran.stderr
    assert f"{made.name} is yours: read it before you share it" in ran.stderr
    assert not (tmp_path / "home").exists()


def test_a_file_that_is_there_is_left_alone_and_nothing_is_asked(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text("mine")
    ran = capture(tmp_path, "-o", "mine.json")
    assert ran.returncode == 1
    assert "gpud: mine.json is there already\n  fix: " in ran.stderr
    assert "asking" not in ran.stderr
    assert (tmp_path / "mine.json").read_text() == "mine"


def test_a_place_that_cannot_be_written_is_said_before_anything_is_asked(tmp_path: Path) -> None:
    ran = capture(tmp_path, "-o", "nowhere/mine.json")
    assert ran.returncode == 1
    assert "cannot write nowhere/mine.json: No such file or directory" in ran.stderr
    assert "asking" not in ran.stderr


@needs_root
def test_what_names_a_machine_is_replaced_alike_wherever_it_was_said(tmp_path: Path) -> None:
    told = load("wsl2-desktop")
    text = encode(told).decode().replace("00000000-0000-4000-8000-000000000001", UUID)
    named = decode(text.encode())
    files = {**named.files, f"/mnt/c/Users/{PERSON}/.wslconfig": f"kernel=C:\\Users\\{PERSON}\\k\n"}
    with replayed(replace(named, files=files), tmp_path) as machine:
        ran = recorded(machine, tmp_path, "-o", "-", "--with-programs")
    left = ran.stdout.decode()
    assert UUID not in left.lower()
    assert PERSON.lower() not in left.lower()
    made = decode(ran.stdout)
    stand = made.cuda.devices[0].uuid
    assert stand == "GPU-00000000-0000-4000-8000-000000000001"
    assert stand in {call.value for call in made.nvml.calls if isinstance(call.value, str)}
    program = made.programs["nvidia-smi.exe"]
    assert program is not None
    assert stand in program.stdout
    assert "/mnt/c/Users/user2/.wslconfig" in made.files
    assert "replaced by stand-ins: UUIDs (1), " in ran.stderr.decode()
    assert "kept as you wrote it, less those names: .wslconfig, wsl.conf" in ran.stderr.decode()


@needs_root
def test_a_driver_that_refuses_to_begin_is_told_of(tmp_path: Path) -> None:
    with replayed(load("wsl2-driver-not-loaded"), tmp_path) as machine:
        ran = recorded(machine, tmp_path, "-o", "-")
    assert "  no answer from NVML: nvmlInitWithFlags gave 9\n" in ran.stderr.decode()


@needs_root
def test_cuda_is_not_asked_in_the_first_minute_of_wsl(tmp_path: Path) -> None:
    with replayed(load("wsl2-desktop"), tmp_path) as machine:
        (machine.sysroot / "proc/uptime").write_text("10.00 1.00\n")
        ran = recorded(machine, tmp_path, "-o", "-")
    failure = decode(ran.stdout).cuda.failure
    assert failure is not None
    assert failure.reason is Reason.NOT_READY
    assert failure.detail.startswith("not asked: GPU work begins at ")


@needs_root
def test_a_driver_that_hangs_everywhere_is_recorded_as_that_within_its_time(tmp_path: Path) -> None:
    capture = load("wsl2-desktop")
    with replayed(capture, tmp_path) as machine:
        lib = machine.sysroot / "usr/lib/wsl/lib"
        rewrite_script((lib / "libnvidia-ml.so.1").resolve(), "hang nvmlInitWithFlags\n")
        rewrite_script((lib / "libcuda.so.1").resolve(), "hang cuInit\n")
        for path in machine.sysroot.rglob("nvidia-smi*"):
            if os.access(path, os.X_OK):
                path.write_text("#!/bin/sh\nexec sleep 60\n")
        begun_s = time.monotonic()
        ran = recorded(machine, tmp_path, "-o", "-", "--with-programs")
        took_s = time.monotonic() - begun_s
    assert took_s < 30
    made = decode(ran.stdout)
    assert made.nvml.error == "no answer within 5 s"
    assert made.cuda.failure is not None
    assert (made.cuda.failure.reason, made.cuda.failure.detail) == (
        Reason.HUNG,
        "no answer within 5 s",
    )
    for name in ("nvidia-smi", "nvidia-smi.exe"):
        program = made.programs[name]
        assert program is not None
        assert (program.code, program.error) == (None, "no answer within 5 s")
    assert made.files["/proc/sys/kernel/osrelease"].startswith("5.15")
    assert "no answer from NVML: no answer within 5 s" in ran.stderr.decode()


@needs_root
def test_it_needs_no_rights_and_stdout_gets_the_document_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for folder in tmp_path.parents[:2]:
        folder.chmod(0o755)
    ran = subprocess.run(
        [*as_nobody(tmp_path), *GPUD, "--home", str(tmp_path / "home"), "capture", "-o", "-"],
        capture_output=True,
        check=False,
        timeout=60,
        cwd="/",
    )
    assert ran.returncode == 0, ran.stderr.decode()
    made = decode(ran.stdout)
    assert encode(made) == ran.stdout  # the document and nothing else
    assert made.unanswered == {}


@needs_root
@pytest.mark.parametrize("caller", [None, "nobody"])
def test_root_records_nothing_and_starts_no_program_itself(
    caller: str | None, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    (tree / "proc/sys/kernel").mkdir(parents=True)
    (tree / "proc/sys/kernel/osrelease").write_text("5.15.167.4-microsoft-standard-WSL2\n")
    (tree / "etc").mkdir()
    (tree / "etc/wsl.conf").write_text("[boot]\ncommand = T0KEN\n")
    (tree / "etc/wsl.conf").chmod(0o600)
    program = tree / "usr/bin/wslinfo"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nid -u\n")
    program.chmod(0o755)
    (tmp_path / "gpud.toml").write_text(f"sysroot = '{tree}'\n[agent]\nuser = 'nobody'\n")
    mine = tmp_path / "mine"
    mine.mkdir()
    nobody = pwd.getpwnam("nobody")
    environ = {} if caller is None else {"SUDO_UID": str(nobody.pw_uid)}
    tmp_path.chmod(0o755)
    if caller is not None:
        os.chown(mine, nobody.pw_uid, nobody.pw_gid)
        for folder in tmp_path.parents[:2]:
            folder.chmod(0o755)
    ran = subprocess.run(
        [*GPUD, "--home", "/", "--config", tmp_path / "gpud.toml", "capture", "-o", "it.json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=mine,
        env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **environ},
    )
    assert ran.returncode == 0, ran.stderr
    facts = (mine / "it.json").stat()
    assert (facts.st_uid, stat.S_IMODE(facts.st_mode)) == (nobody.pw_uid if caller else 0, 0o600)
    made = decode((mine / "it.json").read_bytes())
    assert "/etc/wsl.conf" not in made.files
    wslinfo = made.programs["wslinfo"]
    assert wslinfo is not None
    assert wslinfo.stdout == f"{nobody.pw_uid}\n"
    assert "it.json is yours: read it before you share it" in ran.stderr


@pytest.mark.parametrize("state", ["open", "half_open", "stuck"])
def test_a_driver_that_a_running_gpud_has_seen_hang_is_left_alone(state: str) -> None:
    said = record._hangs({"breaker": {"state": state}})
    assert said == f"not asked: the breaker of the running gpud is {state}"


@pytest.mark.parametrize(
    "status",
    [None, {}, [], {"breaker": None}, {"breaker": {"state": "closed"}}, {"breaker": "open"}],
)
def test_without_such_a_word_the_driver_is_asked(status: object) -> None:
    assert record._hangs(status) is None


def test_the_process_of_the_agents_user_gets_nothing_of_roots_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "T0KEN")
    monkeypatch.setenv("USER", "ada")
    file = tmp_path / "it"
    command.run_as_another(["/usr/bin/env"], command.Request(str(file), programs=False))
    assert set(file.read_text().split()) >= {"USER=ada", "LANG=C.UTF-8"}
    assert "T0KEN" not in file.read_text()
    failing = command.Request(str(tmp_path / "other"), programs=False)
    with pytest.raises(GpudError) as caught:
        command.run_as_another(["/bin/false"], failing)
    assert caught.value.fix is not None


LOOKS_AT_ITS_TERMINAL = """
import json, os, sys
try: terminal = bool(os.open("/dev/tty", os.O_RDWR))
except OSError: terminal = False
print(json.dumps([terminal, [os.isatty(number) for number in range(3)]]))
print("ready \\x1b]0;x\\x07", file=sys.stderr)
"""


@pytest.mark.parametrize("output", ["-", "made.json"])
def test_the_process_of_the_agents_user_has_nothing_of_roots_terminal(
    tmp_path: Path, output: str
) -> None:
    child = [sys.executable, "-Ic", LOOKS_AT_ITS_TERMINAL]
    asked = f"command.run_as_another({child}, command.Request({output!r}, programs=False))"
    root = (
        f"import os; from gpud.agent.capture import command; os.chdir({str(tmp_path)!r}); {asked}"
    )
    with window([sys.executable, "-c", root]) as shown:
        assert shown.ended() == 0
        made = shown.everything if output == "-" else (tmp_path / output).read_text()
        assert "[false, [false, false, false]]" in made
        assert r"ready \x1b]0;x\x07" in shown.everything


def test_root_shows_a_bounded_part_of_what_the_process_of_the_agents_user_says(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    request = command.Request(str(tmp_path / "it"), programs=False)
    with pytest.raises(GpudError):
        command.run_as_another(["sh", "-c", "yes >&2"], request)
    assert len(capfd.readouterr().err) == command.MOST_WORDS


def test_on_a_terminal_a_capture_holds_no_raw_control_character(tmp_path: Path) -> None:
    hostile = '{"name": "\x1b[2J\x9b2J\u202e\U000e0001 \xb5s"}'
    child = ["/usr/bin/printf", "%s\\n", hostile]
    run = f"command.run_as_another({child!r}, command.Request('-', programs=False))"
    line = [sys.executable, "-c", f"from gpud.agent.capture import command\n{run}"]
    with window(line) as shown:
        shown.expect("}")
        assert shown.ended() == 0
    assert json.loads(shown.everything) == json.loads(hostile, strict=False)
    assert shown.everything.isascii()
    assert "\x1b" not in shown.everything
    piped = subprocess.run(line, capture_output=True, check=True, timeout=60)
    assert piped.stdout.decode() == f"{hostile}\n"
