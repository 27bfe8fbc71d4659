"""`deploy/gpu-check` as a person runs it, beside the stand-in driver, from a bare environment."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.child.running import GPU
from tests.gpu_check import building
from tests.gpu_check.building import KERNELS, ROOT
from tests.standins.build import build_libcuda
from tests.waiting import until

SCRIPT = """
launch_ns 20000
sync_ns 5000
flops_per_second 1e10
device.0.free_mem 33554432
"""
PTX = [option for file in sorted(KERNELS.glob("*.ptx")) for option in ("--module", str(file))]
GIVEN = ("--prefix", "gpud_", *PTX, "--quick")

HOSTILE = "GPU `rm`|<b>"

NVBANDWIDTH = """\
#!/bin/sh
[ "$1 $2" = "-b 4" ] || exit 1
echo "Running."
echo "SUM host_to_device_memcpy_ce 100.00"
"""
SMI = """\
#!/bin/sh
# One line for a question, a line every 0.05 s where it is asked in a loop, a list of processes.
case "$*" in
*--query-compute-apps*) cat "${0%/*}/pids" 2>/dev/null; exit 0 ;;
*--loop-ms=*) while :; do echo "2475, 10501, 61, [N/A], 812"; sleep 0.05; done ;;
esac
"""
SANITIZER = """\
#!/bin/sh
# Run what is to be looked at, and complain of one kernel under one tool.
while case $1 in --*) true ;; *) false ;; esac; do
  case $1 in --tool=*) tool=$1 ;; --log-file=*) log=${1#--log-file=} ;; esac
  shift
done
"$@" || exit
if [ "$tool" = --tool=racecheck ]; then
  printf '%s\\n' '========= COMPUTE-SANITIZER' '========= Race at gpud_nbody+0x10' >"$log"
  echo '========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)' >>"$log"
  exit 99
fi
printf '%s\\n' '========= COMPUTE-SANITIZER' '========= ERROR SUMMARY: 0 errors' >"$log"
"""


def check(
    folder: Path, *options: str, script: str = "", path: str = ""
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
        env={"PATH": path or building.path(), "HOME": str(folder), "CUDA_HOME": "/nonexistent"},
        cwd="/",
    )


def with_tools(folder: Path, texts: dict[str, str]) -> str:
    """Write programs; the PATH that has them."""
    (folder / "bin").mkdir()
    for name, text in texts.items():
        tool = folder / "bin" / name
        tool.write_text(text)
        tool.chmod(0o755)
    return f"{folder / 'bin'}:{building.path()}"


def document(folder: Path) -> dict[str, Any]:
    (file,) = (folder / "out").glob("*.json")
    result: dict[str, Any] = json.loads(file.read_text())
    return result


def test_both_sides_run_in_turns_and_every_figure_is_kept(tmp_path: Path) -> None:
    only = ("--only", "launch", "--only", "triad", "--only", "nbody")
    ended = check(tmp_path, *GIVEN, *only, script=f"device.0.name {HOSTILE}\n")
    assert "Traceback" not in ended.stderr
    result = document(tmp_path)
    rows = {
        f"{row['row']['probe']}.{row['row']['mode']}, {row['row']['against']}": row
        for row in result["rows"]
    }
    peak = rows["triad.triad, peak of the GPU's memory"]
    assert peak["theirs"] == [pytest.approx(504e9, rel=1e-3)] * 2  # 10.5 GHz, two words, 192 bits
    for name in ("triad.triad, C", "nbody.nbody, C"):
        assert rows[name]["verdict"] == "held"
        assert rows[name]["ratio"] == pytest.approx(1, abs=0.01)
    submit = rows["launch.submit, C"]  # its ratio is for a machine at rest
    assert len(submit["ratios"]) == result["pairs"] == 2
    assert [turn["probe"] for turn in result["rounds"]] == ["launch", "triad", "nbody"] * 2
    assert [turn["first"] for turn in result["rounds"]] == ["gpud"] * 3 + ["C"] * 3
    assert all(turn["ours"]["conditions"]["settled"] for turn in result["rounds"])
    assert all(turn["theirs"]["figures"] for turn in result["rounds"])
    assert result["machine"]["gpu"]["uuid"] == GPU
    assert result["machine"]["cuda_version"] == "12.8"
    assert "launch.first_launch" in result["without_reference"]
    held = all(row["verdict"] not in {"missed", "not measured"} for row in result["rows"])
    assert ended.returncode == (0 if held else 1)
    (page,) = (tmp_path / "out").glob("*.md")
    assert page.name.endswith("-gpu-rm-b.md")
    assert "# GPU 'rm'\\|&lt;b>, " in page.read_text()
    assert "\x1b" not in ended.stdout + page.read_text()
    for line in filter(None, ended.stdout.splitlines()[1:]):
        assert line.split()[0] in page.read_text()


def test_nothing_is_left_in_the_checkout(tmp_path: Path) -> None:
    library = build_libcuda(tmp_path, SCRIPT)
    tree = tmp_path / "tree"
    for name in ("gpud", "deploy"):
        bare = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tree / name, ignore=bare, symlinks=True)
    before = sorted(tree.rglob("*"))
    command = [sys.executable, "-S", str(tree / "deploy" / "gpu-check"), *GIVEN, "--pairs", "1"]
    command += ["--only", "event", "--library", str(library), "--out", str(tmp_path / "out")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
    assert ended.returncode in {0, 1}, ended.stderr
    assert sorted(tree.rglob("*")) == before


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
    for row in document(tmp_path)["rows"]:
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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), ("no nvcc", "cuda-toolkit")),
        (("--nvcc", "/nonexistent/nvcc"), ("--nvcc /nonexistent/nvcc: there is no such program",)),
        (("--nvcc", "false"), ("false -cubin -arch=sm_89",)),
        ((*GIVEN, "--only", "warp"), ("--only warp: there is nothing of that name; known: copy",)),
        ((*GIVEN, "--pairs", "0"), ("it must be 1 or more",)),
        ((*GIVEN, "--gpu", "7"), (f"--gpu 7: there is no such GPU; there are 0 ({GPU})",)),
        (
            (*GIVEN, "--library", "/nonexistent/libcuda.so"),
            ("no GPU: library_missing", "correct [cuda] library"),
        ),
    ],
)
def test_what_is_wrong_or_absent_is_exit_code_2_and_named_with_the_fix(
    tmp_path: Path, options: tuple[str, ...], words: tuple[str, ...]
) -> None:
    assert shutil.which("nvcc", path=building.path()) is None
    ended = check(tmp_path, *options)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert all(word in ended.stderr for word in words), ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "out").exists()


def test_there_is_no_second_pair_when_the_time_is_up(tmp_path: Path) -> None:
    ended = check(tmp_path, *GIVEN, "--seconds", "0", "--only", "triad")
    assert "1 of 2 pairs: there is no time for more (--seconds)" in ended.stderr
    assert document(tmp_path)["pairs"] == 1


def test_other_tools_on_the_path_are_asked_too(tmp_path: Path) -> None:
    texts = {"nvbandwidth": NVBANDWIDTH, "compute-sanitizer": SANITIZER, "nvidia-smi": SMI}
    path = with_tools(tmp_path, texts)
    ended = check(
        tmp_path,
        *(option for option in GIVEN if option != "--quick"),
        *("--pairs", "1", "--only", "copy"),
        script="tensor_flops_per_second 1e10\ndevice.0.free_mem 8388608\n",
        path=path,
    )
    assert ended.returncode == 1
    result = document(tmp_path)
    of_c, inward = (row for row in result["rows"] if row["row"]["mode"] == "host_to_device")
    assert (of_c["row"]["against"], of_c["verdict"]) == ("C", "held")
    assert inward["row"]["against"] == "nvbandwidth"
    assert inward["ratio"] == pytest.approx(0.25, rel=0.01)
    assert inward["verdict"] == "missed"
    (turn,) = result["rounds"]
    for side in (turn["ours"], turn["theirs"]):
        assert (side["clocks"]["sm_mhz"], side["clocks"]["celsius"]) == (2475, 61)
        assert "watts" not in side["clocks"]
    tools = {checked["tool"]: checked for checked in result["sanitizer"]}
    clean = {name for name, checked in tools.items() if checked["clean"]}
    assert clean == {"memcheck", "synccheck", "initcheck"}
    assert tools["racecheck"]["dirty"] == ["gpud_nbody"]
    sources = [file.read_text() for file in KERNELS.glob("*.ptx")]
    assert set(tools["memcheck"]["kernels"]) == set(re.findall(r"\.entry (\w+)", "".join(sources)))
    assert "racecheck: NOT CLEAN in gpud_nbody: Race at gpud_nbody+0x10" in ended.stdout


def interrupted(  # noqa: PLR0917
    folder: Path,
    number: signal.Signals,
    options: tuple[str, ...],
    said: str,
    runs: int,
    script: str,
) -> str:
    """End the command while so many processes use the GPU; what it says, after nothing is left."""
    path = with_tools(folder, {"nvidia-smi": SMI})
    ledger, temporary = folder / "ledger", folder / "temporary"
    temporary.mkdir()
    library = build_libcuda(folder, f"{SCRIPT}{script}ledger {ledger}\n")
    command = [sys.executable, str(ROOT / "deploy" / "gpu-check"), *options]
    command += ["--library", str(library), "--out", str(folder / "out")]
    environment = {"PATH": path, "HOME": str(folder), "TMPDIR": str(temporary)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        while said not in process.stderr.readline():
            assert process.poll() is None
        until(lambda: len(using(library)) >= runs, "runs on the GPU")
        process.send_signal(number)
        words = process.stderr.read()
    assert process.returncode == 128 + number
    assert "Traceback" not in words
    assert using(library) == using(temporary, "cmdline") == []
    assert using(folder / "bin" / "nvidia-smi", "cmdline") == []
    for line in ledger.read_text().splitlines():
        left = json.loads(line)
        assert (left["vram_left_bytes"], left["pinned_left_bytes"]) == (0, 0)
    assert list(temporary.iterdir()) == []
    assert not (folder / "out").exists()
    return words


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_whoever_ends_it_finds_nothing_left(tmp_path: Path, number: signal.Signals) -> None:
    long_enough = "sync_ns 100000000\n"  # to be seen
    options = (*GIVEN, "--only", "nbody")
    words = interrupted(tmp_path, number, options, "pair 1 of 2: nbody", 1, long_enough)
    assert "ends as soon as the run in progress has given the GPU back" in words


def using(file: Path, place: str = "maps") -> list[int]:
    """The processes that have a file mapped; with ``cmdline`` those that are given it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(file).encode() in (process / place).read_bytes():
                found.append(int(process.name))
    return found


def test_copies_to_a_second_gpu_are_compared_where_there_is_one(tmp_path: Path) -> None:
    only = ("--only", "peer_copy", "--only", "event")
    ended = check(tmp_path, *GIVEN, *only, script="devices 2\ndevice.1.free_mem 33554432\n")
    assert "Traceback" not in ended.stderr
    rows = {
        row["row"]["mode"]: row
        for row in document(tmp_path)["rows"]
        if row["row"]["probe"] == "peer_copy"
    }
    assert {row["verdict"] for row in rows.values()} == {"held"}
    assert len(rows) == 4


def test_without_a_second_gpu_the_result_says_that_nothing_was_copied_to_it(
    tmp_path: Path,
) -> None:
    ended = check(tmp_path, *GIVEN, "--only", "small_peer_copy", "--only", "event")
    assert "small_peer_copy: there is no second GPU" in ended.stdout
    assert document(tmp_path)["tools_absent"]["small_peer_copy"] == "there is no second GPU"
