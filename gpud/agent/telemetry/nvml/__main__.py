"""The NVML helper: one line of JSON in, one line of JSON out, until its input ends.

It is a process of its own because a driver call may hang for good, or end its process; the agent
must not. A question may name the ``fields`` it is about, and ask for ``processes``. An answer has
``readings``, or the ``reason``, ``detail`` and ``fix`` for all of them. With ``last`` this process
ends: a new one gives the next answer, at once where the reason is ``library_replaced``.

``--record`` prints every call that a collection makes, with its raw answer, for ``gpud capture``.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import signal
import sys
import time
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pynvml

from gpud.agent.telemetry.nvml import queries, session
from gpud.agent.telemetry.nvml.queries import NvmlRefusal, guarded
from gpud.agent.telemetry.nvml.session import NvmlSession
from gpud.core import advice
from gpud.core.advice import Platform
from gpud.core.errors import TelemetryError
from gpud.core.sample import MOST_GPUS, plain

if TYPE_CHECKING:
    from gpud.agent.telemetry.nvml.queries import NvmlCall

LIFE_S = 3600.0
"""How long one process serves: which GPUs there are, and what the driver offers, is then new."""
TROUBLED_LIFE_S = 45.0
"""Likewise where a GPU is missing: its return is noticed within a minute."""
BUDGET_S = 90.0
"""How long one question may take before this process ends itself: an agent that still lives has
given up sooner, and one that was killed cannot end what hangs in the driver."""
NAME = "libnvidia-ml"
"""What the library is called, and in WSL the one that its loader opens in the driver's folder."""


def load(candidates: list[str], where: Platform) -> ctypes.CDLL:
    """Open the library by the first path that works, so that ``pynvml`` finds it by its SONAME.

    Errors: ``TelemetryError`` with the loader's own words for every path tried.
    """
    words = []
    for path in candidates:
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            words.append(str(error))
    fix = advice.words(advice.Situation.LIBRARY_MISSING, where)
    if len(candidates) == 1:  # the configured path: no driver mends that
        fix = "correct [nvml] library in gpud.toml, or leave it out"
    raise TelemetryError("; ".join(dict.fromkeys(words)), reason="library_missing", fix=fix)


def mapped() -> list[str]:
    """List the files of NVML in this process; the last does the work. Source: /proc/self/maps."""
    lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    paths = [
        part[0].removesuffix(" (deleted)") for line in lines if (part := line.split(None, 5)[5:])
    ]
    return [path for path in dict.fromkeys(paths) if Path(path).name.startswith(NAME)]


def opened(options: argparse.Namespace) -> NvmlSession:
    """Open NVML. Errors: ``TelemetryError``."""
    load(options.paths, options.platform)
    return NvmlSession(options.platform, options.xids, throughput=options.pcie_throughput)


def answer_to(question: dict[str, Any], nvml: NvmlSession) -> dict[str, Any]:
    """Return the answer to one question. Errors: ``TelemetryError``."""
    readings = nvml.collect(question.get("fields"))
    processes = nvml.processes() if question.get("processes") else []
    return {"readings": [plain(reading) for reading in readings], "processes": processes}


def recorded(candidates: list[str], where: Platform) -> dict[str, Any]:
    """Return library, error, missing and calls, as ``gpud capture`` keeps them. Errors: none.

    Nothing is converted or omitted: 2^64 - 1 stays that. Of process lists, which are about people,
    only the length is recorded. Without a start of NVML there is nothing to ask.
    """
    try:
        exports = load(candidates, where)
    except TelemetryError as error:
        return {"library": None, "error": str(error), "missing": [], "calls": []}
    missing: set[str] = set()
    entries: list[dict[str, Any]] = []

    def ask(call: NvmlCall, gpu: int | None, *handles: Any) -> Any:  # noqa: ANN401  # as C gave it
        answer = guarded(call, partial(call.answer, *handles))
        if hasattr(exports, call.function):
            entries.append(_entry(call, gpu, answer))
        else:
            missing.add(call.function)
        return answer

    if not isinstance(ask(session.INIT, None), NvmlRefusal):
        for call in queries.calls(queries.MACHINE):
            ask(call, None)
        count = ask(session.COUNT, None)
        for gpu in range(min(count, MOST_GPUS) if isinstance(count, int) else 0):
            device = ask(session.handle(gpu), None)
            if not isinstance(device, NvmlRefusal):
                of_gpu = chain(queries.calls(queries.GPU), *queries.PROCESSES.values())
                more = queries.calls(queries.THROUGHPUT)
                for call in (*of_gpu, *more, session.SUPPORTED_EVENTS):
                    ask(call, gpu, device)
    library = next(reversed(mapped()), "")
    return {"library": library, "error": None, "missing": sorted(missing), "calls": entries}


def _entry(call: NvmlCall, gpu: int | None, answer: Any) -> dict[str, Any]:  # noqa: ANN401
    entry = {"call": call.function, "gpu": gpu, "arguments": list(call.arguments), "value": None}
    if isinstance(answer, NvmlRefusal):
        return entry | {"code": answer.code} | ({} if answer.code else {"error": answer.words})
    if isinstance(answer, list):
        answer = {"count": len(answer)}
    elif isinstance(answer, float) and not math.isfinite(answer):
        answer = str(answer)  # JSON has no such number
    value = answer if isinstance(answer, int | float | str | dict) else None  # None: a handle
    return entry | {"code": pynvml.NVML_SUCCESS, "value": value}


def main() -> int:
    """Serve collections, or record one."""
    options = _arguments()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a driver library that prints must not break the protocol
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # it ends even a process that is inside a call
    begun_s, nvml = time.monotonic(), None
    for line in ["{}"] if options.record else sys.stdin:
        signal.setitimer(signal.ITIMER_REAL, options.budget_s)
        try:
            if options.record:
                answer = recorded(options.paths, options.platform)
            else:
                nvml = nvml or opened(options)
                answer = answer_to(json.loads(line), nvml)
                life_s = min(options.life_s, TROUBLED_LIFE_S if nvml.troubled else LIFE_S)
                answer["last"] = time.monotonic() - begun_s >= life_s
        except TelemetryError as error:  # a library half initialised is not asked again
            answer = {"reason": error.reason, "detail": str(error), "fix": error.fix, "last": True}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        signal.setitimer(signal.ITIMER_REAL, 0)
        if answer.get("last"):
            break
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpud.agent.telemetry.nvml", description="asks NVML")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="of the library, in order")
    parser.add_argument("--platform", type=Platform, choices=Platform, default="linux")
    parser.add_argument("--xids", type=json.loads, default={}, help="counted before, by UUID")
    parser.add_argument("--pcie-throughput", action="store_true", help="40 ms a GPU")
    parser.add_argument("--life-s", type=float, default=LIFE_S, help="after which to begin anew")
    parser.add_argument(
        "--budget-s", type=float, default=BUDGET_S, help="of one question; 0 for any"
    )
    parser.add_argument("--record", action="store_true", help="print every call once, and end")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
