"""``gpud capture`` as a person runs it: what it writes, what it takes out, what it waits for."""

from __future__ import annotations

import json
import os
import pwd
import re
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gpud import gpu_lock
from gpud.agent.capture import record
from gpud.agent.capture.record import encode
from gpud.core.sample import Reason
from gpud.core.settings import LOCK, NVML_LOCK, Settings
from tests.captures.replay import decode, load, replayed
from tests.captures.test_replay import GPUD, NOBODY, needs_root, recorded
from tests.e2e.program import as_nobody
from tests.standins.build import rewrite_script
from tests.terminals import window

UUID = "6d0c5f2e-8a41-4b7d-9e13-2c5f00c0ffee"
PERSON = "Lovelace"


def capture(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run it on the machine that the tests run on, as an ordinary user."""
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        environ["SUDO_UID"] = str(NOBODY)
    return subprocess.run(
        [*GPUD, "--home", str(folder / "home"), "capture", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **environ},
    )


def test_the_file_is_named_after_the_moment_and_its_content_is_described(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("mine.json", "mine.json is there already"),
        ("nowhere/mine.json", "cannot write nowhere/mine.json: No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_made_is_an_error_before_anything_is_asked(
    tmp_path: Path, output: str, words: str
) -> None:
    (tmp_path / "mine.json").write_text("mine")
    ran = capture(tmp_path, "-o", output)
    assert ran.returncode == 1
    assert f"gpud: {words}\n  fix: " in ran.stderr
    assert "asking" not in ran.stderr
    assert (tmp_path / "mine.json").read_text() == "mine"


@needs_root
def test_what_names_a_machine_is_replaced_alike_everywhere(tmp_path: Path) -> None:
    text = (
        encode(load("wsl2-desktop")).decode().replace("00000000-0000-4000-8000-000000000001", UUID)
    )
    named = decode(text.encode())
    files = {**named.files, f"/mnt/c/Users/{PERSON}/.wslconfig": f"kernel=C:\\Users\\{PERSON}\\k\n"}
    with replayed(msgspec.structs.replace(named, files=files), tmp_path) as machine:
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
    assert made.known_faults == {"wsl-12476-hmgrtable-panic": "applies"}
    assert "that concern it: wsl-12476-hmgrtable-panic (applies)" in ran.stderr.decode()
    assert "UUIDs (1)" in ran.stderr.decode()
    assert "kept as you wrote it, less those names: .wslconfig, wsl.conf" in ran.stderr.decode()


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
def test_cuda_is_not_asked_while_another_process_has_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "home/run/gpud" / LOCK
    path.parent.mkdir(parents=True)
    fd, me = gpu_lock.open_lock(path), os.getpid()
    path.chmod(0o666)
    assert gpu_lock.take_lock(fd)
    failures = []
    with replayed(load("wsl2-desktop"), tmp_path) as machine:
        for limit_s in (100.0, -100.0):
            gpu_lock.note_child(fd, me, limit_s, "launch on GPU-1")
            failures.append(decode(recorded(machine, tmp_path, "-o", "-").stdout).cuda.failure)
        os.close(fd)
        free = decode(recorded(machine, tmp_path, "-o", "-").stdout)
    for failure, reason in zip(failures, (Reason.NOT_READY, Reason.HUNG), strict=True):
        assert failure is not None
        assert failure.reason is reason
        assert re.match(r"not asked: process \d+ \(launch on GPU-1\)", failure.detail)
    assert free.cuda.failure is None


@needs_root
def test_a_driver_that_hangs_everywhere_is_recorded_as_that_within_its_time(tmp_path: Path) -> None:
    capture, fifo = load("wsl2-desktop"), tmp_path / "fifo"
    os.mkfifo(fifo)
    fifo.chmod(0o666)
    with replayed(capture, tmp_path) as machine:
        lib = machine.sysroot / "usr/lib/wsl/lib"
        for library, call in (
            ("libnvidia-ml.so.1", "nvmlInitWithFlags"),
            ("libcuda.so.1", "cuInit"),
        ):
            rewrite_script((lib / library).resolve(), f"stall {call} {fifo}\n")
        for path in machine.sysroot.rglob("nvidia-smi*"):
            if os.access(path, os.X_OK):
                path.write_text("#!/bin/sh\nexec sleep 60\n")
        ran = recorded(machine, tmp_path, "-o", "-", "--with-programs")
        fifo.write_text("the driver returns: those that were left alone end")
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
def test_through_sudo_it_records_as_the_caller_and_never_as_root(tmp_path: Path) -> None:
    tree, mine, nobody = tmp_path / "tree", tmp_path / "mine", pwd.getpwnam("nobody")
    for name, text, mode in (
        ("proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2\n", 0o644),
        ("etc/wsl.conf", "[boot]\ncommand = T0KEN\n", 0o600),
        ("usr/bin/wslinfo", "#!/bin/sh\nid -u\n", 0o755),
    ):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
        (tree / name).chmod(mode)
    (tmp_path / "gpud.toml").write_text(f"sysroot = '{tree}'\n")
    mine.mkdir()
    os.chown(mine, nobody.pw_uid, nobody.pw_gid)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)

    def as_root(**environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*GPUD, "--home", "/", "--config", tmp_path / "gpud.toml", "capture", "-o", "it.json"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            cwd=mine,
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **environ},
        )

    refused = as_root()
    assert refused.returncode == 1
    assert "gpud capture does not run as root\n  fix: " in refused.stderr
    assert list(mine.iterdir()) == []
    ran = as_root(SUDO_UID=str(nobody.pw_uid))
    assert ran.returncode == 0, ran.stderr
    facts = (mine / "it.json").stat()
    assert (facts.st_uid, stat.S_IMODE(facts.st_mode)) == (nobody.pw_uid, 0o600)
    made = decode((mine / "it.json").read_bytes())
    assert "/etc/wsl.conf" not in made.files
    wslinfo = made.programs["wslinfo"]
    assert wslinfo is not None
    assert wslinfo.stdout == f"{nobody.pw_uid}\n"


@pytest.mark.parametrize("state", ["open", "half_open", "stuck", "closed", None])
def test_a_driver_that_a_running_gpud_has_seen_hang_is_not_asked(state: str | None) -> None:
    hangs = record.hang_of(state and {"state": state})
    asked = state in {"closed", None}
    assert hangs == (None if asked else f"not asked: the breaker of the running gpud is {state}")


@pytest.mark.parametrize("reason", ["hung", "stuck", "failed", None])
def test_nvml_that_a_running_gpud_has_seen_hang_is_not_asked(reason: str | None) -> None:
    status = {"telemetry": {"sources": {"nvml": {"reason": reason}}}}
    hangs = record.nvml_hang_of(Settings(), status)
    assert (hangs is not None) is (reason in {"hung", "stuck"})


def test_nvml_is_not_asked_beside_a_helper_that_stays_in_it(tmp_path: Path) -> None:
    settings = Settings(home=str(tmp_path))
    path = Path(settings.run_dir, "agent", NVML_LOCK)
    path.parent.mkdir(parents=True)
    fd = gpu_lock.open_lock(path)
    assert record.nvml_hang_of(settings, None) is None
    assert gpu_lock.take_lock(fd)
    gpu_lock.note_child(fd, os.getpid(), 60.0, "nvml")
    assert f"process {os.getpid()} (nvml)" in str(record.nvml_hang_of(settings, None))
    os.close(fd)


def test_on_a_terminal_a_capture_holds_no_raw_control_character() -> None:
    hostile = '{"name": "\x1b[2J\x9b2J\u202e\U000e0001 \xb5s"}'
    code = f"sys.stdout.buffer.write(command._printable({hostile!r}.encode(), sys.stdout.buffer))"
    line = [sys.executable, "-c", f"import sys; from gpud.agent.capture import command; {code}"]
    with window(line) as shown:
        shown.expect("}")
        assert shown.ended() == 0
    assert json.loads(shown.everything) == json.loads(hostile, strict=False)
    assert shown.everything.isascii()
    assert "\x1b" not in shown.everything
    piped = subprocess.run(line, capture_output=True, check=True, timeout=60)
    assert piped.stdout.decode() == hostile
