"""Decisions of people: a speed accepted as normal, a stream reset, an alert acknowledged.

The command line writes it into the history and the agent reads it there, so that what was said
while no agent ran, or just before one was killed, is heard all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.core.sample import Condition, StreamKey

BASELINE_ACCEPTED: Final = "baseline_accepted"  # what is now is normal
BASELINE_RESET: Final = "baseline_reset"  # forget what was normal, and learn anew
ALERT_ACKNOWLEDGED: Final = "alert_acknowledged"
PROBE_REQUESTED: Final = "probe_requested"
KINDS: Final = (BASELINE_ACCEPTED, BASELINE_RESET, ALERT_ACKNOWLEDGED)
"""Kinds of events, beside the changes of driver and machine."""

CPU: Final = "cpu"
"""What the streams of the CPU are called where a GPU has its UUID."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which streams are meant. A part that is None means all of them."""

    gpu: str | None = None  # a UUID, or ``CPU``
    probe: str | None = None
    mode: str | None = None

    @property
    def parts(self) -> tuple[str | None, str | None, str | None]:
        """GPU, probe and mode."""
        return self.gpu, self.probe, self.mode

    def holds(self, key: StreamKey) -> bool:
        """Say whether a stream is meant."""
        return self.fits((key.gpu or CPU, key.probe, key.mode))

    def fits(self, parts: tuple[str | None, str | None, str | None]) -> bool:
        """Return whether a stream with these parts (GPU, probe and mode) is chosen."""
        return all(chosen in {None, part} for chosen, part in zip(self.parts, parts, strict=True))

    def __str__(self) -> str:
        """Name it for a person: "launch submit on GPU-...", "everything"."""
        what = " ".join(part for part in (self.probe, self.mode) if part) or "everything"
        if self.gpu is None:
            return what
        return f"{what} on {'the CPU' if self.gpu == CPU else self.gpu}"


EVERYTHING: Final = Choice()


@dataclass(frozen=True, slots=True)
class Command:
    """One thing that was said. ``number`` grows; ``at_s`` is Unix time.

    ``after_run`` is the newest run of the history at that moment: a replay that has come so far
    knows that this is its place.
    """

    number: int
    at_s: float
    kind: str
    after_run: int
    choice: Choice = EVERYTHING
    fingerprint: str | None = None  # of the alert that was acknowledged

    def body(self) -> dict[str, Condition]:
        """Give what the history keeps beside kind and moment; ``understood`` reads it."""
        named = {"gpu": self.choice.gpu, "probe": self.choice.probe, "mode": self.choice.mode}
        named["fingerprint"] = self.fingerprint
        return {
            "after_run": self.after_run,
            **{name: value for name, value in named.items() if value is not None},
        }


def understood(
    number: int, at_s: float, kind: str, body: Mapping[str, Condition]
) -> Command | None:
    """Read a command back; None for what no command line wrote.

    A part that is there and no text is not taken for "all of them": that would reset too much.
    """
    after_run = body.get("after_run")
    parts = {name: body.get(name) for name in ("gpu", "probe", "mode", "fingerprint")}
    texts = {name: part for name, part in parts.items() if isinstance(part, str)}
    if kind not in KINDS or type(after_run) is not int or len(texts) < len(parts.keys() & body):
        return None
    fingerprint = texts.pop("fingerprint", None)
    if (kind == ALERT_ACKNOWLEDGED) != (fingerprint is not None):
        return None
    return Command(number, at_s, kind, after_run, Choice(**texts), fingerprint)
