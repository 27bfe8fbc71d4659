"""Laptops whose samples have a moment that is not now: long offline, or a clock that is ahead."""

from __future__ import annotations

import time
import urllib.request
from typing import TYPE_CHECKING

from tests.e2e.scraping import running
from tests.fleet import tools
from tests.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.scraping import Tool

DAY_S = 86400
AWAY_D = 14


def push(shipper: Tool, instance: str, at_s: float) -> None:
    """Have a shipper send one scrape with a moment of its own, the shipper's and gpud's."""
    of = f'{{job="gpud",instance="{instance}"}}'
    at_ms = int(at_s * 1000)
    lines = f"gpud_build_info{of} 1 {at_ms}\ngpud_time_seconds{of} {at_s} {at_ms}"
    url = f"http://127.0.0.1:{shipper.port}/api/v1/import/prometheus"
    with urllib.request.urlopen(url, lines.encode(), timeout=LIMIT_S) as answer:
        assert answer.status == 204


def test_two_week_old_samples_arrive_and_a_fast_clock_disturbs_no_other_machine(
    tmp_path: Path,
) -> None:
    store = tools.receiver(tmp_path / "receiver", hurry=(600, 1))
    shipper = tools.vmagent(
        tmp_path / "vmagent",
        "http://127.0.0.1:1/none.json",
        f"http://127.0.0.1:{store.port}/api/v1/write",
        interval_s=30,
    )

    def arrived(instance: str, count: int) -> bool:
        kept = f'count_over_time(gpud_build_info{{instance="{instance}"}}[{AWAY_D + 1}d])'
        return [value for _, value in store.values(kept)] == [count]

    with running(store, shipper):
        push(shipper, "others", time.time())
        until(lambda: arrived("others", 1), "the store has a present")
        push(shipper, "laptop", time.time() - AWAY_D * DAY_S)
        until(lambda: arrived("laptop", 1), "what was kept arrives")
        push(shipper, "ahead", time.time() + 5 * DAY_S)
        until(
            lambda: bool(store.values("gpud_build_info", time=str(time.time() + 5 * DAY_S))),
            "the future has arrived",
        )
        push(shipper, "others", time.time())
        until(lambda: arrived("others", 2), "the others are heard of")

        def told() -> set[str]:
            push(shipper, "ahead", time.time() + 5 * DAY_S)
            push(shipper, "others", time.time())
            return {
                one["labels"]["instance"]
                for one in store.alerts()
                if one["labels"]["alertname"] == "GpudClockSkew" and one["state"] == "firing"
            }

        assert until(told, "a clock is told of", every_s=1) == {"ahead"}
