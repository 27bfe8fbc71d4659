"""The process in which a sink does what may block: one job, then it ends or is killed (ADR 19)."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

from gpud.agent import children
from gpud.core.errors import DeliveryError
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.agent.alerts.sink import Context

COMMAND: Final = (sys.executable, "-I", "-m", "gpud.agent.alerts.send")


class Sender:
    """Runs the jobs of ``gpud.agent.alerts.send`` for one sink and words its failures.

    ``fixes`` are by reason; any other reason has the fix ``otherwise``.
    """

    def __init__(
        self, context: Context, place: str, fixes: Mapping[str, str], otherwise: str
    ) -> None:
        self._context = context
        self._place = place
        self._fixes = fixes
        self._otherwise = otherwise

    async def run(self, job: dict[str, Any]) -> dict[str, Any]:
        """Run a job and return its result. Errors: ``DeliveryError``."""
        timeout_s = self._context.timeout_s
        content = json.dumps(job | {"timeout_s": timeout_s}).encode()
        self._context.spawned()
        try:
            ended = await children.run(COMMAND, content, deadline_s=timeout_s)
        except OSError as error:
            raise self.failure("spawn_failed", f"no process for it: {error.strerror}") from error
        last = _last_line(ended.stdout)
        if "status" in last:
            return last
        if "reason" in last:
            raise self.failure(str(last["reason"]), str(last["detail"]))
        if ended.killed:
            stage = last.get("stage", "for it to begin")
            raise self.failure("timed_out", f"waited {timeout_s:g} s in vain {stage}")
        raise self.failure("crashed", f"the process that sends ended with {ended.code}")

    def failure(self, reason: str, words: str) -> DeliveryError:
        """Return the error of a reason; an address that is none is not tried again."""
        return DeliveryError(
            f"{self._place}: {escaped(words)}",
            reason=reason,
            fix=self._fixes.get(reason, self._otherwise),
            again=reason != "bad_url",
        )


def _last_line(stdout: bytes) -> dict[str, Any]:
    last: dict[str, Any] = {}
    for line in stdout.splitlines():
        try:
            last = json.loads(line)
        except ValueError:
            continue  # killed in the middle of it
    return last
