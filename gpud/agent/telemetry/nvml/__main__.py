"""The NVML helper: one line of JSON in, one line of JSON out, until its input ends.

It is a process of its own because a driver call may hang for good, or end its process; the agent
must not. A question may name the ``fields`` it is about. An answer has ``readings``, or the
``reason``, ``detail`` and ``fix`` for all of them. With ``last`` this process ends: a new one gives
the next answer, at once where the reason is ``library_replaced``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from gpud.agent.telemetry.nvml.library import load
from gpud.agent.telemetry.nvml.record import recorded
from gpud.agent.telemetry.nvml.session import Session
from gpud.core.advice import Platform
from gpud.core.errors import TelemetryError
from gpud.core.sample import plain

if TYPE_CHECKING:
    from gpud.agent.telemetry.nvml.library import Library

LIFE_S = 3600.0
"""How long one process serves: which GPUs there are, and what the driver knows, is then new."""
TROUBLED_LIFE_S = 45.0
"""Likewise where a GPU is missing: its return is noticed within a minute."""

BUDGET_S = 90.0
"""How long one question may take before this process ends itself: an agent that still lives has
given up sooner, and one that was killed cannot end what hangs in the driver."""


REPLACED = "another driver is being installed: its library or version changed"


class Helper:
    """Answers questions: NVML is opened at the first, and any trouble with it ends the process."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._library: Library | None = None
        self._session: Session | None = None
        self._opened_s = 0.0

    def answer(self, question: dict[str, Any], now_s: float) -> dict[str, Any]:
        """Return the answer to one question. ``now_s`` is monotonic."""
        try:
            session = self._session or self._open(now_s)
            assert self._library is not None  # noqa: S101  # there is no session without
            if self._library.replaced() or session.driver_changed():
                return {"reason": "library_replaced", "detail": REPLACED, "last": True}
            readings = session.collect(question.get("fields"))
        except TelemetryError as error:
            return {"reason": error.reason, "detail": str(error), "fix": error.fix, "last": True}
        life_s = min(self._arguments.life_s, TROUBLED_LIFE_S if session.troubled else LIFE_S)
        last = now_s - self._opened_s >= life_s
        return {"readings": [plain(reading) for reading in readings], "last": last}

    def _open(self, now_s: float) -> Session:
        given = self._arguments
        library = load(given.paths, given.platform)
        self._session = Session(given.platform, given.xids, throughput=given.pcie_throughput)
        self._library = library.watched()
        self._opened_s = now_s
        return self._session


def main() -> int:
    """Serve collections, or record one."""
    given = _arguments()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a driver library that prints must not break the protocol
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # it ends even a process that is inside a call
    if given.record:
        signal.setitimer(signal.ITIMER_REAL, given.budget_s)
        answers.write(json.dumps(recorded(given.paths, given.platform)) + "\n")
        answers.flush()
        return 0
    helper = Helper(given)
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_REAL, given.budget_s)
        answer = helper.answer(json.loads(line), time.monotonic())
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        signal.setitimer(signal.ITIMER_REAL, 0)
        if answer["last"]:
            break  # begun anew next time: a library half initialised is not asked again
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpud.agent.telemetry.nvml", description="asks NVML")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="of the library, in order")
    parser.add_argument("--platform", type=Platform, choices=Platform, default="linux")
    parser.add_argument("--xids", type=json.loads, default={}, help="counted before, by UUID")
    parser.add_argument("--pcie-throughput", action="store_true", help="40 ms a GPU")
    parser.add_argument("--life-s", type=float, default=LIFE_S, help="after which to begin anew")
    parser.add_argument("--budget-s", type=float, default=BUDGET_S, help="of one question")
    parser.add_argument("--record", action="store_true", help="print every call once, and end")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
