"""The files of gpud that one CPU measurement enters: in its child, in the agent, in a scrape of it.

    .venv/bin/python benchmarks/path.py

A real ``gpud run`` measures ``cpu_call`` every few seconds. Its agent and its children run under
``sys.setprofile``, from one published run to the next and a scrape of that one. A file counts when
one of its functions is called; bodies of modules and classes do not count, nor does what the agent
does every second anyway (``BESIDE``). Files that only a task enters which looks at every published
state (``LOOKING``) are listed apart. It is a figure to learn from: files are not merged for it.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import runpy
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.e2e.program import Program, cuda, only, program  # noqa: E402
from tests.waiting import until  # noqa: E402

if TYPE_CHECKING:
    from types import FrameType

PACKAGE = f"{ROOT}/gpud/"
BESIDE = {"tick", "containers", "settings", "store", "windows", "alerts"}
"""Tasks of the agent that have no part in a measurement; the last looks for what is to be sent."""
LOOKING = {"alert state": "looking for alerts", "report": "writing agent.json"}
"""Tasks that look at every published state, whatever it was made by."""
INTERPRETER = """#!/bin/bash
case "$*" in
  "-I -m gpud.agent "* | "-I -m gpud.child "*)
    exec -a "$0" '{python}' -I '{script}' --trace '{folder}' "${{@:3}}" ;;
esac
exec -a "$0" '{python}' "$@"
"""


def trace(folder: Path, module: str) -> None:
    """Run a module and write the files it enters: a child's at its end, the agent's on SIGUSR2."""
    files: set[str] = set()
    looking: dict[str, str] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or code.co_filename in files or code.co_name == "<genexpr>":
            return  # a generator's file has been entered, or it is in the body of a class
        function = code.co_flags & inspect.CO_OPTIMIZED  # no body of a module or class
        if not function or not code.co_filename.startswith(PACKAGE):
            return
        if (task := _task()) in LOOKING:
            looking[code.co_filename] = LOOKING[task]
        elif task not in BESIDE:
            files.add(code.co_filename)

    def write(*_: object) -> None:
        path = folder / f"{module}.tmp"
        names = [*files, *(f"{name}, {why}" for name, why in looking.items() if name not in files)]
        path.write_text("\n".join(sorted(name.removeprefix(PACKAGE) for name in names)))
        path.rename(folder / module)

    def clear(*_: object) -> None:
        files.clear()
        looking.clear()

    signal.signal(signal.SIGUSR1, clear)
    signal.signal(signal.SIGUSR2, write)
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        sys.setprofile(None)
        if module == "gpud.child":
            write()


def _task() -> str:
    """Name the task that runs in this thread, empty for none."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return ""
    return "" if task is None else task.get_name()


def traced_python(folder: Path) -> Path:
    """Make a virtual environment like this one, whose agent and probe children are traced."""
    (folder / "bin").mkdir(parents=True)
    folder.chmod(0o777)
    shutil.copy(Path(sys.prefix, "pyvenv.cfg"), folder)
    (folder / "lib").symlink_to(Path(sys.prefix, "lib"))
    python = folder / "bin/python"
    python.write_text(
        INTERPRETER.format(python=sys.executable, script=Path(__file__).resolve(), folder=folder)
    )
    python.chmod(0o755)
    return python


def measured(gpud: Program, count: int) -> int:
    """Scrape until so many runs are published; return how many there are."""

    def scraped() -> int:
        runs = int(gpud.value("gpud_probe_runs_total", probe="cpu_call") or 0)
        return runs if runs >= count else 0

    return until(scraped, f"{count} runs", every_s=0.1)


def main() -> int:
    """Print the files, by process."""
    if sys.argv[1:2] == ["--trace"]:
        folder, module = Path(sys.argv[2]), sys.argv[3]
        sys.argv = [module, *sys.argv[4:]]
        trace(folder, module)
        return 0
    with program(probes=only("cpu_call"), nvml={}) as gpud:
        folder = gpud.home / "traced"
        gpud.python = traced_python(folder)
        gpud.settings["cuda"] = cuda(gpud.home)  # one that fails is listed anew in every round
        gpud.settings["schedule"] = {"small_interval_s": 4.0, "telemetry_interval_s": 3600.0}
        gpud.start()
        runs = measured(gpud, 2)
        agent = gpud.agent_pid()
        assert agent is not None
        (folder / "gpud.child").unlink(missing_ok=True)
        os.kill(agent, signal.SIGUSR1)
        measured(gpud, runs + 1)
        os.kill(agent, signal.SIGUSR2)
        until((folder / "gpud.agent").exists, "the agent's files")
        until((folder / "gpud.child").exists, "the child's files, which it writes at its end")
        files = {
            name: (folder / name).read_text().splitlines() for name in ("gpud.child", "gpud.agent")
        }
    for name, entered in files.items():
        print(f"{name}: {len(entered)} files", *entered, sep="\n  ")
    every = {name for entered in files.values() for name in entered}
    path = {name for name in every if "," not in name}
    apart = len({name.partition(",")[0] for name in every} - path)
    print(f"together: {len(path) + apart} files, {apart} of them by tasks that look at every state")
    return 0


if __name__ == "__main__":
    sys.exit(main())
