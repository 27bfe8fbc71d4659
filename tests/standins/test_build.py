"""Stand-ins are built once, however many processes ask for them at the same moment."""

import os
import subprocess
import sys
from pathlib import Path

from tests.standins.build import SOURCES, build_libcuda, rewrite_script

CHECKOUT = SOURCES.parents[1]
BUILD_AND_USE = """
import ctypes, sys
from pathlib import Path
from tests.standins.build import build_libcuda
library = build_libcuda(Path(sys.argv[1]), without=["cuStreamQuery"])
sys.exit(ctypes.CDLL(str(library)).cuInit(0))
"""


def test_processes_that_build_at_once_all_get_a_whole_library(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "cache")}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", BUILD_AND_USE, str(tmp_path / target)],
            env=environment,
            cwd=CHECKOUT,
        )
        for target in ("one", "one", "two")
    ]
    assert [process.wait(timeout=60) for process in processes] == [0, 0, 0]
    (cache,) = (tmp_path / "cache").iterdir()
    assert sorted(file.suffix for file in cache.iterdir()) == [".1", ".map"]


def test_nothing_but_the_library_and_its_script_is_left_in_the_folder(tmp_path: Path) -> None:
    library = build_libcuda(tmp_path, "devices 1\n")
    rewrite_script(library, "devices 2\n")
    found = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    assert found == {"libcuda.so.1": 0o755, "libcuda.so.1.script": 0o644}
    assert (tmp_path / "libcuda.so.1.script").read_text() == "devices 2\n"
