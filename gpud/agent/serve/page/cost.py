"""What gpud itself takes of the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.agent.serve.page import parts
from gpud.agent.serve.page.parts import UNKNOWN, duration, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.agent.serve.page.view import View
    from gpud.show.markup import Child, Html


LEAST_PERCENT: Final = 0.01


def section(view: View) -> Html:
    """Draw gpud's own cost since the agent started."""
    return parts.section("cost", "What gpud takes", parts.facts(_facts(view)))


def _facts(view: View) -> Iterator[tuple[str, Child]]:
    document, counters, own = view.document, view.document["counters"], view.own
    running_s = max(view.now_s - document["started_s"] - counters["paused_s"], 0.0)
    yield "memory (RSS)", UNKNOWN if own.rss_bytes is None else size(own.rss_bytes)
    yield "CPU time", _shared(own.cpu_s, running_s, "of one core")
    yield "GPU time", _shared(counters["gpu_seconds"], running_s, "of one GPU")
    for name, label in (
        ("vram_peak_bytes", "GPU memory, the most of one run"),
        ("pinned_peak_bytes", "page-locked memory, the most of one run"),
    ):
        known = counters[name]
        yield label, UNKNOWN if known is None else size(known)
    yield "processes started", f"{counters['children']:,}"
    runs = sum(counters["runs"].values())
    failed = sum(counters["failures"].values())
    yield "runs", f"{runs:,}, {failed:,} failed"
    store = document.get("store")
    if store is None:
        yield "history", UNKNOWN
    else:
        lost = f", {store['waiting']} waiting" if store["waiting"] else ""
        lost += f", {store['dropped']} lost" if store["dropped"] else ""
        yield "history", f"{size(store['n_bytes'])}, {store['runs']:,} runs{lost}"
    if counters["paused_s"]:
        yield "the machine slept", duration(counters["paused_s"])
    if counters["clock_jumps"]:
        yield "clock jumps", str(counters["clock_jumps"])


def _shared(took_s: float | None, running_s: float, of: str) -> str:
    """Write a time and what share of the running time it is: "12.0 s, 0.08 % of one core"."""
    if took_s is None:
        return UNKNOWN
    if not running_s:
        return duration(took_s)
    percent = 100 * took_s / running_s
    share = f"{percent:.2g}" if percent >= LEAST_PERCENT else f"less than {LEAST_PERCENT:g}"
    return f"{duration(took_s)}, {share} % {of}"
