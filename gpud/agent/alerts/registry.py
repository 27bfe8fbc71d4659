"""The sinks there are, and how one is told so that it can harm nobody else."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from gpud import discovery
from gpud.agent import children
from gpud.agent.alerts import sinks as folder
from gpud.agent.alerts.sink import OFFERS
from gpud.core.errors import DeliveryError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from gpud.agent.alerts.sink import Context, Sink
    from gpud.core.message import Message

BEYOND_S: Final = 2 * children.GRACE_S
"""Beyond its own deadline a sink may take so long to end what it started."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Found:
    """The sinks there are, and why others are not, by plug-in."""

    sinks: tuple[Sink, ...]
    refused: Mapping[str, str]


def found(context: Context) -> Found:
    """Make every sink that is configured and not disabled, and say which are not usable."""
    usable, refused = discovery.modules(folder, OFFERS)
    disabled = set(context.settings.alerts.disabled)
    broken = {name: why for name, why in refused.items() if name not in disabled}
    if unknown := disabled - usable.keys() - refused.keys():
        known = ", ".join(sorted(usable))
        broken |= dict.fromkeys(unknown, f"[alerts] disabled: there is no such sink, only {known}")
    made: list[Sink] = []
    for name, module in usable.items():
        if name not in disabled:
            made += module.create(context)
    return Found(tuple(made), broken)


async def sent(sink: Sink, message: Message, timeout_s: float) -> DeliveryError | None:
    """Deliver, and say what went wrong, None when nothing did."""
    return await _guarded(sink, lambda: sink.send(message), timeout_s)


async def looked(sink: Sink, timeout_s: float) -> DeliveryError | None:
    """Say why it could not deliver, None when it could."""
    return await _guarded(sink, sink.ready, timeout_s)


async def _guarded(
    sink: Sink, work: Callable[[], Awaitable[None]], timeout_s: float
) -> DeliveryError | None:
    """Do a sink's work within its time. The boundary: a plug-in may fail in any way."""
    try:
        async with asyncio.timeout(timeout_s + BEYOND_S):
            await work()
    except DeliveryError as error:
        return error
    except TimeoutError:
        return DeliveryError(f"{sink.place}: no end after {timeout_s:g} s", reason="timed_out")
    except Exception as error:  # noqa: BLE001  # its words may hold an address with its secrets
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        where = "" if trace is None else f" in line {trace.tb_lineno}"
        what = f"{type(error).__name__}{where} of its module"
        log.error("sink_crashed", sink=sink.name, error=what)  # noqa: TRY400  # as above
        return DeliveryError(
            f"{sink.place}: {what}",
            reason="crashed",
            fix="this is a bug in gpud; the log has its place",
        )
    return None
