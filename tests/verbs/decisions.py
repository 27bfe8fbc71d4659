"""One stream, one alert and the document they stand in, for tests of alerts and baselines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from gpud.agent.regression.detector import Detector, Direction
from gpud.agent.state.status import alert_report
from gpud.core.alerts import Cause
from gpud.core.streams import StreamKey
from gpud.document.machine import ListedGpu
from tests.events import made
from tests.snapshots import SLOWER

if TYPE_CHECKING:
    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.alerts import Alert

UUID = "GPU-11111111-aaaa"
SUBMIT = StreamKey(UUID, "launch", "submit")
HOSTILE = "\x1b[2J\u202e<b>"
NOW_S = 1_760_000_000.0


def stream(**changes: Any) -> dict[str, Any]:
    """One stream as the status document has it."""
    return {
        "gpu": 0,
        "uuid": UUID,
        "probe": "launch",
        "mode": "submit",
        "version": 1,
        "on_battery": False,
        "unit": "seconds",
        "usual": 12.4e-6,
        "slowdown": 1.12,
        "judged": 1200,
        "open": [],
        "verdict": None,
        **changes,
    }


def made_alert(old: str = "572.16") -> Alert:
    evidence = structs.replace(SLOWER.evidence[0], stream=SUBMIT, since_s=NOW_S)
    return structs.replace(
        SLOWER,
        labels={"old": old, "new": "576.02"},
        summary=f"submission latency +12 % since driver {old} -> 576.02",
        starts_s=NOW_S,
        updated_s=NOW_S,
        evidence=(evidence,),
        causes=(Cause("driver", old, "576.02"),),
        fix="roll the driver back",
    )


def alert(old: str = "572.16", **changes: Any) -> dict[str, Any]:
    """One alert as the status document has it."""
    return {**msgspec.to_builtins(alert_report(made_alert(old))), **changes}


def document(**parts: Any) -> dict[str, Any]:
    gpus = {UUID: {"number": 0, "name": f"RTX {HOSTILE}"}}
    return {"schema_version": 1, "gpus": gpus, "streams": [], "alerts": [], **parts}


def snapshot(*keys: StreamKey) -> Snapshot:
    """What an agent has: these streams, one GPU, and an alert about the first of them."""
    standing = Detector(Direction.LOWER).standing()
    return made(
        "1",
        0.0,
        gpus={UUID: ListedGpu(0, "RTX", "0000:01:00.0", cuda=True)},
        streams=dict.fromkeys(keys or (SUBMIT,), standing),
        alerts=(made_alert(),),
    )
