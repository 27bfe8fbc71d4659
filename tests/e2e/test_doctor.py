"""``gpud doctor`` as a person runs it: beside a running gpud, without one, unprivileged, hung."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tests.doctor.trees import with_libraries
from tests.e2e.program import cuda, nvml, program
from tests.standins.build import rewrite_script
from tests.waiting import until

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
        timeout=60,
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

        def seen() -> dict[str, dict[str, Any]] | None:
            found = checks(made.home)
            ready = all(found[n]["verdict"] == "ok" for n in ("libcuda", "driver", "port", "gpud"))
            return found if ready else None

        found = until(seen, "all that gpud says of itself")
        assert "runs, process" in found["gpud"]["evidence"]
        assert found["libcuda"]["evidence"].startswith(made.settings["cuda"]["library"])
        assert f"127.0.0.1:{made.port}, served by gpud's agent" in found["port"]["evidence"]
        assert "last write" in found["store"]["evidence"]


def test_without_gpud_it_looks_itself_and_makes_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    found = checks(home)
    assert found["gpud"] | {"fix": "", "title": ""} == {
        "name": "gpud",
        "title": "",
        "verdict": "advice",
        "evidence": "gpud is not running",
        "fix": "",
    }
    assert "not there yet" in found["store"]["evidence"]
    assert not home.exists()


def test_the_lines_and_the_document_say_the_same(tmp_path: Path) -> None:
    shown = doctor(tmp_path).stdout
    for check in checks(tmp_path).values():
        assert check["title"] in shown
    assert "\x1b" not in shown  # no terminal, no colour


def test_a_wrong_setting_is_a_problem_and_everything_else_is_looked_at(tmp_path: Path) -> None:
    found = checks(tmp_path, GPUD_HTTP__LISTEN="nowhere")
    assert found["settings"]["verdict"] == "problem"
    assert "listen must be HOST:PORT" in found["settings"]["evidence"]
    assert found["port"]["verdict"] == "ok"


def test_a_driver_that_hangs_costs_its_own_lines_and_no_others(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    with_libraries(tree, cuda="hang cuInit\n")
    library = tree / "usr/lib/wsl/lib/libnvidia-ml.so.1"
    rewrite_script(library, "hang nvmlInitWithFlags\n")
    found = checks(tmp_path / "home", GPUD_SYSROOT=str(tree))
    assert "answer" in found["libcuda"]["evidence"]
    assert "answer" in found["driver"]["evidence"]
    assert found["libcuda"]["verdict"] in {"problem", "unknown"}  # by whose clock it was cut
    assert found["libnvml"]["verdict"] == "ok"
    assert found["wsl"]["verdict"] == "ok"
    assert all(c["evidence"] for c in found.values())


def test_nothing_is_written_anywhere(tmp_path: Path) -> None:
    tree, log = tmp_path / "tree", tmp_path / "strace.log"
    with_libraries(tree)
    calls = "trace=%file,fchmod,fchown"
    strace: list[str | Path] = ["strace", "-f", "-qq", "-e", calls, "-o", log]
    ran = doctor(tmp_path / "home", before=strace, GPUD_SYSROOT=str(tree))
    assert "WSL 2" in ran.stdout, ran.stderr
    traced = log.read_text().splitlines()
    assert any("proc/sys/kernel/osrelease" in line for line in traced)  # it saw the checks
    written = {found["path"] for line in traced if (found := WRITES.search(line))}
    # The children import a package; what is not compiled yet is compiled beside its source.
    opened = {path for path in written if "__pycache__" not in path}
    assert opened == {"/dev/null", "/proc/self/comm"}  # the name of the process
    changes = [line for line in traced if CHANGES.search(line)]
    assert [line for line in changes if "__pycache__" not in line] == []
