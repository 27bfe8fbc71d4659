"""Status documents of machines as they are met, and what page and screen make of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from gpud.agent.serve.page import page
from gpud.agent.state import status as published
from gpud.agent.telemetry.fields import FIELDS
from gpud.document.status import read as document_of
from gpud.show import status
from gpud.show.model import Input
from gpud.show.view import View, text
from tests import snapshots
from tests.browser import worlds
from tests.show.reading import Page

if TYPE_CHECKING:
    from gpud.agent.state.snapshot import Snapshot

NOW_S = snapshots.NOW.wall_s
UUID = worlds.DEVICE.uuid
SMALL = "GPU-b1f6c9d2-0a35-4c77-8c60-93c5a1e07d48"


def of(snapshot: Snapshot) -> dict[str, Any]:
    """Return the document of a snapshot as a command reads it: JSON."""
    made: dict[str, Any] = json.loads(
        msgspec.json.encode(published.document(snapshot, now=snapshots.NOW))
    )
    return made


def machine(state: str = "fine", **changes: Any) -> dict[str, Any]:
    """Return the document of one of the states of `tests.browser.worlds`, changed in depth."""
    return merged(of(worlds.snapshot(state)), changes)


def full(**changes: Any) -> dict[str, Any]:
    """Return the document of a machine that has everything, changed in depth."""
    return merged(of(snapshots.full()), changes)


def merged(made: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Put changes in place; what is a table in both is merged, all else exchanged."""
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(made.get(key), dict)
        made[key] = merged(made[key], value) if both else value
    return made


def launch(made: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Change the last run of the probe launch."""
    (run,) = [run for run in made["probes"] if run["probe"] == "launch"]
    run |= changes
    return made


def unwell(**parts: Any) -> dict[str, Any]:
    """Return a machine of which these components fail."""
    return machine(health={name: {"level": 2, "since_s": NOW_S} | of for name, of in parts.items()})


def two_gpus() -> dict[str, Any]:
    """Add a smaller GPU with the same figures to a machine that is fine."""
    made = machine()
    made["gpus"][SMALL] = made["gpus"][UUID] | {"number": 1, "name": "NVIDIA RTX A2000 12GB"}
    made["cuda"]["devices"].append(
        made["cuda"]["devices"][0] | {"uuid": SMALL, "name": "NVIDIA RTX A2000 12GB"}
    )
    made["expected"][SMALL] = {"name": "NVIDIA RTX A2000 12GB", "gone_s": None}
    for key in ("probes", "streams"):
        made[key] += [each | {"gpu": 1, "uuid": SMALL} for each in made[key] if each["gpu"] == 0]
    telemetry = made["telemetry"]["readings"]
    telemetry += [
        reading | {"gpu": 1, "value": "NVIDIA RTX A2000 12GB"}
        for reading in telemetry
        if reading["field"] == "name"
    ]
    return made


def telemetry(**values: float | str | None) -> dict[str, Any]:
    """Return a machine with one GPU of which only these values are known; None: not supported."""
    made = machine()
    made["telemetry"]["readings"] = [
        {
            "field": field,
            "gpu": None if FIELDS[field].machine else 0,
            "source": "nvml",
            "value": value,
            "absent": "unsupported" if value is None else None,
        }
        for field, value in values.items()
    ]
    return made


def screen(made: dict[str, Any], view: View | None = None, now_s: float = NOW_S) -> list[str]:
    """Return the lines of `gpud status`."""
    drawn = status.screen(document_of(made), now_s, view or View())
    return [text(line) for line in drawn]


def html(made: dict[str, Any]) -> str:
    """Return the text of the page."""
    shown = Input(document_of(made))
    return page(shown, "laptop", "/etc/gpud/gpud.toml")


def read(made: dict[str, Any]) -> Page:
    """Return the page as a browser reads it."""
    return Page(html(made))
