"""``gpud doctor`` as a person runs it: beside a running gpud, without one, unprivileged, hung."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tests.e2e.program import cuda, nvml, program
from tests.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

GPUD = [sys.executable, "-I", "-B", "-m", "gpud"]
WRITES = re.compile(
    r"\b(?:openat|open)\([^\"]*\"(?P<path>[^\"]*)\", [^)]*O_(?:WRONLY|RDWR|CREAT|TRUNC|APPEND)"
)
CHANGES = re.compile(
    r"\b(?:creat|mkdir|mkdirat|unlink|unlinkat|rmdir|rename\w*|link|linkat|symlink\w*|chmod|"
    r"fchmod\w*|chown|fchown\w*|lchown|truncate|utime\w*|mknod\w*|mount|setxattr)\("
)


def doctor(
    home: Path, *words: str, before: Sequence[str | Path] = (), **environ: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, *GPUD, "--home", str(home), "doctor", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
        cwd="/",
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", **environ},
    )


def checks(home: Path, **environ: str) -> dict[str, dict[str, Any]]:
    ran = doctor(home, "--json", **environ)
    document = json.loads(ran.stdout)
    assert document["schema_version"] == 1
    assert ran.returncode == (1 if document["state"] == "problem" else 0), ran.stderr
    return {check["name"]: check for check in document["checks"]}


def test_doctor_uses_the_report_of_a_running_gpud() -> None:
    with program() as made:
        made.settings |= {"cuda": cuda(made.home), "nvml": nvml(made.home)}
        made.start()

        def observed() -> dict[str, dict[str, Any]] | None:
            result = checks(made.home)
            ready = all(result[n]["verdict"] == "ok" for n in ("libcuda", "driver", "gpud"))
            return result if ready else None

        result = until(observed, "all that gpud says of itself")
        assert "runs, process" in result["gpud"]["evidence"]
        assert result["libcuda"]["evidence"].startswith(made.settings["cuda"]["library"])
        assert made.process is not None
        made.process.kill()
        made.process.wait()
        assert checks(made.home)["gpud"]["evidence"] == "gpud is not running"


def test_without_gpud_it_asks_no_driver_and_lines_and_document_say_the_same(tmp_path: Path) -> None:
    home = tmp_path / "home"
    result = checks(home)
    assert result["gpud"]["name"] == "gpud"
    assert (result["gpud"]["verdict"], result["gpud"]["evidence"]) == (
        "advice",
        "gpud is not running",
    )
    assert result["libcuda"]["evidence"] == "not known without a running gpud"
    shown = doctor(home).stdout
    for check in result.values():
        assert check["title"] in shown
    assert "\x1b" not in shown  # no terminal, no colour
    assert not home.exists()


def test_a_wrong_setting_is_a_problem_and_everything_else_is_looked_at(tmp_path: Path) -> None:
    result = checks(tmp_path, GPUD_HTTP__LISTEN="nowhere")
    assert result["settings"]["verdict"] == "problem"
    assert "listen must be HOST:PORT" in result["settings"]["evidence"]


def test_nothing_is_written(tmp_path: Path) -> None:
    log = tmp_path / "strace.log"
    strace: list[str | Path] = ["strace", "-f", "-qq", "-e", "trace=%file,fchmod,fchown", "-o", log]
    ran = doctor(tmp_path / "home", before=strace)
    assert "kernel" in ran.stdout, ran.stderr
    traced = log.read_text().splitlines()
    assert any("proc/sys/kernel/osrelease" in line for line in traced)  # it saw the checks
    written = {result["path"] for line in traced if (result := WRITES.search(line))}
    # The children import a package; what is not compiled yet is compiled beside its source.
    assert {path for path in written if "__pycache__" not in path} <= {
        "/dev/null",
        "/proc/self/comm",
    }
    changes = [line for line in traced if CHANGES.search(line)]
    assert [line for line in changes if "__pycache__" not in line] == []
