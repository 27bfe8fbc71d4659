"""`deploy/gpu-check` as a person runs it, beside the stand-in driver, from a bare environment."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.child.running import GPU
from tests.gpu_check.building import KERNELS, ROOT
from tests.standins.build import build_libcuda

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
launch_ns 20000
sync_ns 5000
flops_per_second 1e10
device.0.free_mem 33554432
"""
PTX = [option for file in sorted(KERNELS.glob("*.ptx")) for option in ("--module", str(file))]
GIVEN = ("--prefix", "gpud_", *PTX, "--quick")


NVBANDWIDTH = """\
#!/bin/sh
echo "Running $2."
echo "SUM host_to_device_memcpy_ce 100.00"
"""
SANITIZER = """\
#!/bin/sh
# Run what is to be looked at, and complain of one kernel under one tool.
tool=$1 log=${3#--log-file=}
shift 3
"$@" || exit
if [ "$tool" = --tool=racecheck ]; then
  printf '%s\\n' '========= COMPUTE-SANITIZER' '========= Race at gpud_nbody+0x10' >"$log"
  echo '========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)' >>"$log"
  exit 99
fi
printf '%s\\n' '========= COMPUTE-SANITIZER' '========= ERROR SUMMARY: 0 errors' >"$log"
"""


def check(
    folder: Path, *options: str, script: str = "", path: str = "/usr/bin:/bin"
) -> subprocess.CompletedProcess[str]:
    """Run the command with no third-party package in sight and nothing on PATH but the system."""
    library = build_libcuda(folder, SCRIPT + script)
    command = [sys.executable, "-S", str(ROOT / "deploy" / "gpu-check")]
    return subprocess.run(
        [*command, "--library", str(library), "--out", str(folder / "out"), *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
        env={"PATH": path, "HOME": str(folder), "CUDA_HOME": "/nonexistent"},
        cwd="/",
    )


def document(folder: Path) -> dict[str, Any]:
    (file,) = (folder / "out").glob("*.json")
    result: dict[str, Any] = json.loads(file.read_text())
    return result


def test_both_sides_run_in_turns_and_every_figure_is_kept(tmp_path: Path) -> None:
    ended = check(tmp_path, *GIVEN, "--only", "launch", "--only", "triad", "--only", "nbody")
    assert "Traceback" not in ended.stderr
    result = document(tmp_path)
    rows = {f"{row['row']['probe']}.{row['row']['mode']}": row for row in result["rows"]}
    for name in ("triad.triad", "nbody.nbody"):
        assert rows[name]["verdict"] == "held"
        assert rows[name]["ratio"] == pytest.approx(1, abs=0.01)
    submit = rows["launch.submit"]  # its ratio is for a machine at rest
    assert len(submit["ratios"]) == result["pairs"] == 2
    assert [turn["probe"] for turn in result["rounds"]] == ["launch", "triad", "nbody"] * 2
    assert result["machine"]["gpu"]["uuid"] == GPU
    assert result["machine"]["cuda_version"] == "12.8"
    assert "launch.first_launch" in result["without_reference"]
    held = all(row["verdict"] not in {"missed", "not measured"} for row in result["rows"])
    assert ended.returncode == (0 if held else 1)
    (page,) = (tmp_path / "out").glob("*.md")
    assert page.name.endswith("-nvidia-geforce-rtx-4070-stand-in.md")
    for line in filter(None, ended.stdout.splitlines()[1:]):
        assert line.split()[0] in page.read_text()


def test_both_sides_use_the_driver_that_gpud_finds(tmp_path: Path) -> None:
    """Under WSL the loader may know none, or a stray one that finds no GPU."""
    (place := tmp_path / "lib" / "wsl" / "lib").mkdir(parents=True)
    build_libcuda(place, SCRIPT)
    layers = f"lowerdir={tmp_path / 'lib'}:/usr/lib"
    mounted = f'mount -t overlay overlay -o {layers} /usr/lib && exec "$@"'
    command = [sys.executable, "-S", str(ROOT / "deploy" / "gpu-check"), *GIVEN]
    options = ("--out", str(tmp_path / "out"), "--pairs", "1", "--only", "nbody")
    ended = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mounted, "sh", *command, *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    (turn,) = document(tmp_path)["rounds"]
    assert turn["theirs"]["failure"] is None, ended.stderr
    assert turn["theirs"]["verified"] == ["nbody"]


def test_a_wrong_result_gives_no_ratio_and_exit_code_1(tmp_path: Path) -> None:
    ended = check(
        tmp_path, *GIVEN, "--pairs", "1", "--only", "triad", script="corrupt gpud_triad 9999\n"
    )
    assert ended.returncode == 1
    (row,) = document(tmp_path)["rows"]
    assert row["verdict"] == "not measured"
    assert row["ratios"] == []
    assert "NOT MEASURED" in ended.stdout
    assert "element" in ended.stdout or "verification_failed" in ended.stdout


def test_where_gpud_chose_no_size_the_reference_burdens_nobody(tmp_path: Path) -> None:
    slow = "flops_per_second 1e8\n"
    ended = check(tmp_path, *GIVEN, "--pairs", "1", "--only", "nbody", script=slow)
    assert ended.returncode == 1
    (turn,) = document(tmp_path)["rounds"]
    assert turn["ours"]["failure"].startswith("budget_exceeded")
    assert turn["theirs"]["failure"] == "not run, since gpud chose no size"
    assert "gpud: budget_exceeded" in ended.stdout


def test_a_gpu_that_is_not_there_is_exit_code_2_with_the_ones_that_are(tmp_path: Path) -> None:
    ended = check(tmp_path, *GIVEN, "--gpu", "7")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"--gpu 7: there is no such GPU; there are 0 ({GPU})" in ended.stderr
    assert not (tmp_path / "out").exists()


def test_a_driver_that_is_not_where_it_was_said_to_be_is_exit_code_2_with_the_fix(
    tmp_path: Path,
) -> None:
    ended = check(tmp_path, *GIVEN, "--library", str(tmp_path / "absent.so"))
    assert ended.returncode == 2
    assert "no GPU: library_missing" in ended.stderr
    assert "correct [cuda] library" in ended.stderr


def test_no_nvcc_is_exit_code_2_with_what_to_install(tmp_path: Path) -> None:
    assert shutil.which("nvcc", path="/usr/bin:/bin") is None
    ended = check(tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "no nvcc" in ended.stderr
    assert "cuda-toolkit" in ended.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--nvcc", "/nonexistent/nvcc"), "--nvcc /nonexistent/nvcc: there is no such program"),
        (("--nvcc", "false"), "false -cubin -arch=sm_89"),
        ((*GIVEN, "--only", "warp"), "--only warp: there is nothing of that name; known: copy"),
        ((*GIVEN, "--pairs", "0"), "it must be 1 or more"),
    ],
)
def test_a_wrong_argument_is_exit_code_2_and_named(
    tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    ended = check(tmp_path, *options)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr


def test_there_is_no_second_pair_when_the_time_is_up(tmp_path: Path) -> None:
    ended = check(tmp_path, *GIVEN, "--seconds", "0", "--only", "triad")
    assert "1 of 2 pairs: there is no time for more (--seconds)" in ended.stderr
    assert document(tmp_path)["pairs"] == 1


def test_other_tools_on_the_path_are_asked_too(tmp_path: Path) -> None:
    for name, text in (("nvbandwidth", NVBANDWIDTH), ("compute-sanitizer", SANITIZER)):
        tool = tmp_path / "bin" / name
        tool.parent.mkdir(exist_ok=True)
        tool.write_text(text)
        tool.chmod(0o755)
    ended = check(
        tmp_path,
        *(option for option in GIVEN if option != "--quick"),
        *("--pairs", "1", "--only", "copy"),
        script="tensor_flops_per_second 1e10\ndevice.0.free_mem 8388608\n",
        path=f"{tmp_path / 'bin'}:/usr/bin:/bin",
    )
    assert ended.returncode == 1
    result = document(tmp_path)
    inward = next(row for row in result["rows"] if row["row"]["mode"] == "host_to_device")
    assert inward["best"] == "nvbandwidth"
    assert inward["ratio"] == pytest.approx(0.25, rel=0.01)
    assert inward["verdict"] == "missed"
    assert set(result["tools_absent"]) >= {"torch", "cupy"}
    tools = {checked["tool"]: checked for checked in result["sanitizer"]}
    clean = {name for name, checked in tools.items() if checked["clean"]}
    assert clean == {"memcheck", "synccheck", "initcheck"}
    assert tools["racecheck"]["dirty"] == ["gpud_nbody"]
    texts = [file.read_text() for file in KERNELS.glob("*.ptx")]
    assert set(tools["memcheck"]["kernels"]) == set(re.findall(r"\.entry (\w+)", "".join(texts)))
    assert "racecheck: NOT CLEAN in gpud_nbody: Race at gpud_nbody+0x10" in ended.stdout
