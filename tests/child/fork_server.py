"""Answer one question a line as ``gpud.child`` would, each in a fork of its own.

A program, not a module: it imports the child once, so that thousands of runs against as many driver
libraries cost a fork each and no interpreter. The driver is loaded after the fork only. A line on
stdin is a list of cases ``{"id", "job"}``; a line on stdout is one answer
``{"id", "code", "out", "err"}``, in the order in which they end.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from gpud import discovery
from gpud.child import __main__ as child
from gpud.child import cuda_gpu, probes

AT_ONCE = (os.cpu_count() or 1) + 1

Running = dict[int, tuple[str, int, int]]
"""By pid: the case, and the files that its output goes to."""


def main() -> None:
    discovery.modules(probes, ("SPEC", "run"))
    assert cuda_gpu.SPIN  # imported before the fork, as everything that is no driver
    running: Running = {}
    for line in sys.stdin:
        for case in json.loads(line):
            if len(running) >= AT_ONCE:
                _answer(running)
            _start(case, running)
        while running:
            _answer(running)


def _start(case: dict[str, Any], running: Running) -> None:
    out, err = os.memfd_create("out"), os.memfd_create("err")
    pid = os.fork()
    if pid:
        running[pid] = (case["id"], out, err)
        return
    code = 70
    try:
        os.dup2(out, 1)
        os.dup2(err, 2)
        job = os.memfd_create("in")
        os.pwrite(job, json.dumps(case["job"]).encode(), 0)
        os.dup2(job, 0)
        sys.argv = ["gpud.child", "--serve"]
        code = child.main()
    finally:  # also with an exception: its traceback is not ours to catch, its end is
        sys.stderr.flush()
        os._exit(code)


def _answer(running: Running) -> None:
    pid, status = os.waitpid(-1, 0)
    name, out, err = running.pop(pid)
    report = {"id": name, "code": os.waitstatus_to_exitcode(status)}
    for key, file in (("out", out), ("err", err)):
        report[key] = os.pread(file, 1 << 20, 0).decode(errors="replace")
        os.close(file)
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
