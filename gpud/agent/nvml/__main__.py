"""The NVML helper: one line of JSON in, one line of JSON out, until its input ends.

It is a process of its own because a driver call may hang for good; the agent must not.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import Any

from gpud.agent.nvml import library, queries
from gpud.core.errors import TelemetryError
from gpud.core.sample import Absent, Reading


def main() -> int:
    """Serve collections. Argument: the library paths to try, in order."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a driver library that prints must not break the protocol
    handles: list[Any] | None = None
    for _ in sys.stdin:
        try:
            if handles is None:
                library.load(sys.argv[1:])
                handles = library.open_()
            answer: dict[str, Any] = {
                "readings": [_wire(found) for found in queries.read(handles)],
            }
        except TelemetryError as error:
            handles = None
            answer = {"reason": error.reason, "detail": str(error), "fix": error.fix}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        if handles is None:
            return 0  # begun anew next time: a library half initialised is not asked again
    return 0


def _wire(reading: Reading) -> dict[str, Any]:
    """Keep text and reason apart on the wire, where both are strings."""
    absent = reading.value if isinstance(reading.value, Absent) else None
    return {**asdict(reading), "value": None if absent else reading.value, "absent": absent}


if __name__ == "__main__":
    sys.exit(main())
