"""How gpud is, in one word, since when, why, and what to do: the first line of the page. Pure.

The document is plain JSON that may come from another release: what it lacks is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpud.core.alerts import DRIVER_REGRESSION, RUNBOOKS, SLOWDOWN, UNWELL
from gpud.core.health import Level
from gpud.show.skipwords import unmeasured

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OK, DEGRADED, FAILED, STARTING = "ok", "degraded", "failed", "starting"
WORDS: Final = {OK: "Fine", DEGRADED: "Degraded", FAILED: "Failed", STARTING: "Starting"}
SLOWER: Final = "Slower"
"""Every part works, and work takes longer than it did."""
NEW_S: Final = 300.0
"""For so long after its start an agent without a single run is starting; then nothing is due."""
FIRST: Final = (
    *("root", "agent", "gpu", "devices", "cuda", "dxg", "dockerd", "containers", "nvml"),
    *("probes", "store", "http", "discovery", "alerts", "gate", "settings"),
)
"""Which component to name of several that are equally bad: what the others follow from first."""
PLAIN: Final = {
    "root": "gpud's supervisor",
    "agent": "gpud itself",
    "gpu": "GPU work",
    "devices": "",  # its words name the GPUs
    "cuda": "CUDA",
    "dxg": "the GPU's channel to Windows",
    "dockerd": "Docker",
    "containers": "GPU containers",
    "nvml": "NVML",
    "probes": "the probes",
    "store": "the history",
    "http": "the page's listener",
    "discovery": "a probe's module",
    "alerts": "telling people",
    "gate": "measuring",
    "settings": "the settings",
}
"""Components as people call them."""


@dataclass(frozen=True, slots=True)
class Headline:
    """The state: one of ``WORDS``' keys, its word, and what there is to say of it.

    Units: ``since_s`` is Unix time, None where nobody knows. ``about`` is the path of a page that
    says more. Texts may quote foreign strings and are escaped where shown.
    """

    state: str
    word: str
    since_s: float | None
    why: str
    fix: str | None = None
    about: str | None = None
    more: int = 0  # other things that are not well


def headline(document: Mapping[str, Any]) -> Headline:
    """Sum a status document up.

    A component that fails comes before an alert, and that before one that is degraded; what a
    person has acknowledged is no news.
    """
    health = document.get("health") or {}
    unwell = sorted(
        (name for name, one in health.items() if one["level"] > Level.OK),
        key=lambda name: (-health[name]["level"], _place(name), name),
    )
    alerts = unseen(document)
    failed = [name for name in unwell if health[name]["level"] >= Level.FAILED]
    if failed:
        return _of_component(FAILED, health, failed, len(unwell) - 1)
    told = [one for one in alerts if one["name"] != UNWELL]
    if told:
        return _of_alert(told, len(unwell))
    if unwell:
        return _of_component(DEGRADED, health, unwell, len(unwell) - 1)
    if _starting(document):
        why = "the first probes have not ended yet; the first figures come within a minute or two"
        return Headline(STARTING, WORDS[STARTING], document.get("started_s"), why)
    return _fine(document, health)


def unseen(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Give what fires and nobody has acknowledged, the most severe and then the oldest first."""
    found = [
        one
        for one in document.get("alerts") or ()
        if one["firing"] and one["acknowledged_s"] is None
    ]
    return sorted(found, key=lambda one: (one["severity"] != "critical", one["starts_s"]))


def began_s(alert: Mapping[str, Any]) -> float:
    """Give since when what an alert tells of is so; it is told later. Units: Unix time."""
    evidence = alert.get("evidence") or ()
    return float(min([alert["starts_s"], *(one["since_s"] for one in evidence)]))


def called(component: str) -> str:
    """Name a component in a sentence."""
    return PLAIN.get(component, component)


def _of_component(
    state: str, health: Mapping[str, Any], names: Sequence[str], more: int
) -> Headline:
    """Several components often have one cause, and then say the same."""
    since = [health[name]["since_s"] for name in names if health[name].get("since_s") is not None]
    first = health[names[0]]
    alike = sum(1 for name in names[1:] if health[name].get("detail") == first.get("detail"))
    name = called(names[0])
    said = first.get("detail") or str(first.get("reason") or "no reason is known").replace("_", " ")
    return Headline(
        state,
        WORDS[state],
        min(since, default=None),
        f"{name}: {said}" if name else said,
        first.get("fix"),
        f"{RUNBOOKS}/{UNWELL}" if state == FAILED else None,
        max(more - alike, 0),
    )


def _of_alert(alerts: Sequence[Mapping[str, Any]], more: int) -> Headline:
    first = alerts[0]
    slower = first["name"] in {DRIVER_REGRESSION, SLOWDOWN}
    return Headline(
        DEGRADED,
        SLOWER if slower else WORDS[DEGRADED],
        min(map(began_s, alerts)),
        first["summary"],
        first.get("fix"),
        first.get("runbook"),
        len(alerts) - 1 + more,
    )


def _fine(document: Mapping[str, Any], health: Mapping[str, Any]) -> Headline:
    """Nothing is wrong since the last thing was: a component, or an alert that has ended."""
    ends = [one["ends_s"] for one in document.get("alerts") or () if one.get("ends_s") is not None]
    moments = [one["since_s"] for one in health.values() if one.get("since_s")] + ends
    skipped = unmeasured(document)
    without = next(
        (
            health[name]
            for name in ("devices", "cuda", "nvml")
            if name in health and health[name].get("reason")
        ),
        None,
    )
    if without is not None:
        said = without.get("detail") or str(without["reason"]).replace("_", " ")
        why = f"everything that is here works; {said}"
    elif skipped:
        why = f"{skipped}; everything else that is watched works"
    elif _learning(document):
        why = "everything that is watched works; what is usual here is still being learned"
    else:
        why = "everything that is watched works, and nothing is slower than it was"
    known = sum(
        1
        for one in document.get("alerts") or ()
        if one["firing"] and one["acknowledged_s"] is not None
    )
    if known:
        many = f"{known} alerts that you have" if known > 1 else "one alert that you have"
        why = f"{many} acknowledged; {skipped or 'nothing else is wrong'}"
    fix = None if without is None else without.get("fix")
    return Headline(OK, WORDS[OK], max(moments, default=None), why, fix)


def _learning(document: Mapping[str, Any]) -> bool:
    """Say whether there is no figure yet that anything could be slower than."""
    streams = document.get("streams") or ()
    return bool(streams) and all(one.get("level") is None for one in streams)


def _starting(document: Mapping[str, Any]) -> bool:
    age_s = document["written_s"] - document["started_s"]
    return not document.get("probes") and age_s < NEW_S


def _place(component: str) -> int:
    return FIRST.index(component) if component in FIRST else len(FIRST)
