"""Commands of people: accept a speed as the baseline, reset a stream, acknowledge an alert.

They are written into the history before they are obeyed, so that a replay obeys them again, each at
its place among the runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec.structs import asdict

from gpud.core.streams import EVERYTHING, Choice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.core.sample import Condition

BASELINE_ACCEPTED: Final = "baseline_accepted"  # the present speed is usual
BASELINE_RESET: Final = "baseline_reset"  # forget the baseline, and learn again
ALERT_ACKNOWLEDGED: Final = "alert_acknowledged"
PROBE_REQUESTED: Final = "probe_requested"
KINDS: Final = (BASELINE_ACCEPTED, BASELINE_RESET, ALERT_ACKNOWLEDGED)
"""Kinds of commands, as events name them."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command. ``number`` grows; ``at_s`` is Unix time.

    ``after_run``, the newest run of the history at that moment, is its place in a replay.
    """

    number: int
    at_s: float
    kind: str
    after_run: int
    choice: Choice = EVERYTHING
    fingerprint: str | None = None  # of the alert that was acknowledged

    def body(self) -> dict[str, Condition]:
        """Return the event's body; ``decoded`` reads it."""
        parts = {**asdict(self.choice), "fingerprint": self.fingerprint}
        texts = {name: text for name, text in parts.items() if text is not None}
        return {"after_run": self.after_run, **texts}


def decoded(number: int, at_s: float, kind: str, body: Mapping[str, Condition]) -> Command | None:
    """Read a command from its event; None for a damaged body.

    A part that is there and no text is not taken for "all of them": that would reset too much.
    """
    after_run = body.get("after_run")
    parts = {name: body[name] for name in ("gpu", "probe", "mode", "fingerprint") if name in body}
    texts = {name: part for name, part in parts.items() if isinstance(part, str)}
    fingerprint = texts.pop("fingerprint", None)
    if type(after_run) is not int or len(texts) + (fingerprint is not None) < len(parts):
        return None
    if (kind == ALERT_ACKNOWLEDGED) != (fingerprint is not None):
        return None
    return Command(number, at_s, kind, after_run, Choice(**texts), fingerprint)
