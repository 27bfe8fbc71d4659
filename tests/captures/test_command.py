"""``gpud capture`` as a person runs it; a replayed machine is recorded again as it was."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from gpud import gpu_lock, processes
from gpud.core.settings import NVML_LOCK, Settings
from gpud.verbs import capture
from gpud.verbs.scrub import scrubbed
from tests.captures.recording import RECORDED
from tests.captures.replay import MACHINES, decode, load, names, replayed
from tests.e2e.program import QUICK, as_nobody
from tests.standins.build import rewrite_script
from tests.waiting import LIMIT_S

if TYPE_CHECKING:
    from tests.captures.replay import Replayed

UUID = "6d0c5f2e-8a41-4b7d-9e13-2c5f00c0ffee"
KERNEL = "/proc/sys/kernel/osrelease"
PERSON = "Lovelace"
SOON = {"linux-mig", "wsl2-desktop", "wsl2-driver-not-loaded"}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it makes devices")


PATIENT = """
import sys
from gpud.__main__ import main
from gpud.verbs import capture
capture.DEADLINE_S = float(sys.argv.pop(1))
sys.exit(main())
"""


def recorded(
    folder: Path, *words: str, deadline_s: float = LIMIT_S
) -> subprocess.CompletedProcess[str]:
    """Run the real ``gpud capture`` as an ordinary user, with the settings in ``folder``.

    ``deadline_s`` is for each program that it asks, which are slow on a busy machine.
    """
    gpud = (sys.executable, "-I", "-c", PATIENT, str(deadline_s))
    config = ("--config", str(folder / "gpud.toml")) if (folder / "gpud.toml").exists() else ()
    line = [*gpud, "--home", str(folder / "home"), *config, "capture", *words]
    for place in (folder, *folder.parents[:2]):
        place.chmod(0o755)
    out = folder / "out"
    out.mkdir(exist_ok=True)
    out.chmod(0o777)
    if os.geteuid() == 0:
        line = [*as_nobody(folder), "/bin/sh", "-c", 'cd "$0"; exec "$@"', str(out), *line]
    return subprocess.run(
        line,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
        cwd=out,
        env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "USER": PERSON},
    )


def settings(machine: Replayed, folder: Path) -> None:
    """Write the settings of a gpud on a replayed machine."""
    sections = {"dockerd": QUICK["dockerd"], **machine.sections}
    lines = [f'sysroot = "{machine.sysroot}"']
    for name, values in sections.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    (folder / "gpud.toml").write_text("\n".join(lines) + "\n")


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
    gpu_lock.note_holder(fd, processes.ref(os.getpid()), 60.0, "nvml")
    assert f"process {os.getpid()} (nvml)" in str(capture.hang_of(of_home, None))
    os.close(fd)


@needs_root
@pytest.mark.parametrize(
    "name", [n if n in SOON else pytest.param(n, marks=pytest.mark.soak) for n in names()]
)
def test_machine_recorded_again_is_the_same(name: str, tmp_path: Path) -> None:
    known = load(name)
    with replayed(known, tmp_path) as machine:
        settings(machine, tmp_path)
        ran = recorded(tmp_path, "-o", "-")
        assert ran.returncode == 0, ran.stderr
        made = decode(ran.stdout.encode())
        assert made.nvml is not None
        assert known.nvml is not None
        assert made.nvml.calls == known.nvml.calls
        assert made.nvml.missing == known.nvml.missing
        assert made.devices == known.devices
        assert made.files.items() <= known.files.items()
        assert {"doctor", "nvml"}.isdisjoint(made.unanswered)


@pytest.mark.parametrize("name", names())
def test_a_machine_is_kept_in_its_one_form_and_names_nobody(name: str) -> None:
    known, text = load(name), (MACHINES / f"{name}.json").read_text()
    # Not what gpud of today writes: a later one may know keys that a recording has not.
    again = json.dumps(json.loads(text), sort_keys=True, indent=2, ensure_ascii=False)
    assert text == f"{again}\n"
    document = msgspec.json.decode(msgspec.json.encode(known))
    del document["programs"]  # their versions look like addresses
    assert scrubbed(document) == (document, {})
    assert known.origin == RECORDED or known.origin.startswith("built: ")
