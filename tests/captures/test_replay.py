"""A replayed machine is the recorded one: gpud records it again and finds no difference."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

from gpud.verbs.scrub import scrubbed
from tests.captures.recording import RECORDED
from tests.captures.replay import MACHINES, decode, load, names, replayed
from tests.e2e.program import QUICK, as_nobody
from tests.waiting import LIMIT_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.captures.replay import Replayed

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


@needs_root
@pytest.mark.parametrize(
    "name", [n if n in SOON else pytest.param(n, marks=pytest.mark.soak) for n in names()]
)
def test_machine_recorded_again_is_the_same(name: str, tmp_path: Path) -> None:
    capture = load(name)
    with replayed(capture, tmp_path) as machine:
        settings(machine, tmp_path)
        ran = recorded(tmp_path, "-o", "-")
        assert ran.returncode == 0, ran.stderr
        made = decode(ran.stdout.encode())
        assert made.nvml is not None
        assert capture.nvml is not None
        assert made.nvml.calls == capture.nvml.calls
        assert made.nvml.missing == capture.nvml.missing
        assert made.devices == capture.devices
        assert made.files.items() <= capture.files.items()
        assert {"doctor", "nvml"}.isdisjoint(made.unanswered)


@pytest.mark.parametrize("name", names())
def test_a_machine_is_kept_in_its_one_form_and_names_nobody(name: str) -> None:
    capture, text = load(name), (MACHINES / f"{name}.json").read_text()
    # Not what gpud of today writes: a later one may know keys that a recording has not.
    again = json.dumps(json.loads(text), sort_keys=True, indent=2, ensure_ascii=False)
    assert text == f"{again}\n"
    document = msgspec.json.decode(msgspec.json.encode(capture))
    del document["programs"]  # their versions look like addresses
    assert scrubbed(document) == (document, {})
    assert capture.origin == RECORDED or capture.origin.startswith("built: ")
