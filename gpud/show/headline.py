"""State of gpud in one word, since when, why, and what to do: the first line of page and screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gpud.core.alerts import DRIVER_REGRESSION, RUNBOOKS, SLOWDOWN, UNWELL
from gpud.core.health import Level
from gpud.show.skipwords import unmeasured

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpud.show.document import Alert, Health, Status

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


class Headline(NamedTuple):
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


def headline(document: Status) -> Headline:
    """Sum a status document up.

    A component that fails comes before an alert, and that before one that is degraded; what a
    person has acknowledged is no news.
    """
    health = document.health
    unwell = sorted(
        (name for name, one in health.items() if one.level > Level.OK),
        key=lambda name: (-health[name].level, _place(name), name),
    )
    alerts = unseen(document)
    failed = [name for name in unwell if health[name].level >= Level.FAILED]
    if failed:
        return _of_component(FAILED, health, failed, len(unwell) - 1)
    told = [one for one in alerts if one.name != UNWELL]
    if told:
        return _of_alert(told, len(unwell))
    if unwell:
        return _of_component(DEGRADED, health, unwell, len(unwell) - 1)
    if not document.probes and document.written_s - document.started_s < NEW_S:
        why = "the first probes have not ended yet; the first figures come within a minute or two"
        return Headline(STARTING, WORDS[STARTING], document.started_s, why)
    return _fine(document)


def unseen(document: Status) -> list[Alert]:
    """Return what fires and nobody has acknowledged, the most severe and then the oldest first."""
    found = [one for one in document.alerts if one.firing and one.acknowledged_s is None]
    return sorted(found, key=lambda one: (one.severity != "critical", one.starts_s))


def _of_component(
    state: str, health: Mapping[str, Health], names: Sequence[str], more: int
) -> Headline:
    """Several components often have one cause, and then say the same."""
    since = [at_s for name in names if (at_s := health[name].since_s) is not None]
    first = health[names[0]]
    alike = sum(1 for name in names[1:] if health[name].detail == first.detail)
    name = PLAIN.get(names[0], names[0])
    why = first.why or "no reason is known"
    return Headline(
        state,
        WORDS[state],
        min(since, default=None),
        f"{name}: {why}" if name else why,
        first.fix,
        f"{RUNBOOKS}/{UNWELL}" if state == FAILED else None,
        max(more - alike, 0),
    )


def _of_alert(alerts: Sequence[Alert], more: int) -> Headline:
    first = alerts[0]
    slower = first.name in {DRIVER_REGRESSION, SLOWDOWN}
    return Headline(
        DEGRADED,
        SLOWER if slower else WORDS[DEGRADED],
        min(one.began_s for one in alerts),
        first.summary,
        first.fix,
        first.runbook,
        len(alerts) - 1 + more,
    )


def _fine(document: Status) -> Headline:
    """Nothing is wrong since the last thing was: a component, or an alert that has ended."""
    health = document.health
    moments = [one.since_s for one in health.values()] + [one.ends_s for one in document.alerts]
    skipped = unmeasured(document)
    absent = [health[name] for name in ("devices", "cuda", "nvml") if name in health]
    without = next((one for one in absent if one.reason), None)
    acknowledged = sum(one.firing and one.acknowledged_s is not None for one in document.alerts)
    if acknowledged:
        many = f"{acknowledged} alerts that you" if acknowledged > 1 else "one alert that you"
        why = f"{many} have acknowledged; {skipped or 'nothing else is wrong'}"
    elif without is not None:
        why = f"everything that is here works; {without.why}"
    elif skipped:
        why = f"{skipped}; everything else that is watched works"
    elif document.streams and all(one.level is None for one in document.streams):
        why = "everything that is watched works; what is usual here is still being learned"
    else:
        why = "everything that is watched works, and nothing is slower than it was"
    since_s = max((at_s for at_s in moments if at_s), default=None)
    return Headline(OK, WORDS[OK], since_s, why, without.fix if without else None)


def _place(component: str) -> int:
    return FIRST.index(component) if component in FIRST else len(FIRST)
