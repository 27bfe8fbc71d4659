"""An outcome as the one JSON document of ``gpud probe --json``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gpud.agent.byhand.outcome import results
from gpud.core.sample import SCHEMA_VERSION

if TYPE_CHECKING:
    from gpud.agent.byhand.outcome import Outcome, Result
    from gpud.core.sample import ProbeSpec


def of_outcome(outcome: Outcome) -> dict[str, Any]:
    """Give every run as its child reported it, and the results over all repeats.

    Units: base units; ``duration_s`` in seconds. ``interrupted``: what is there is not everything.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "interrupted": outcome.interrupted,
        "repeat": outcome.repeats,
        "cuda": asdict(outcome.inventory) if outcome.inventory is not None else None,
        "results": [_result(result) for result in results(outcome)],
        "runs": [
            {"repeat": ran.repeat, "gpu": ran.gpu, **asdict(ran.report)} for ran in outcome.runs
        ],
        "not_run": [asdict(missed) for missed in outcome.not_run],
        "refused": outcome.refused,
        "no_history": outcome.no_past,
    }


def of_listing(specs: tuple[ProbeSpec, ...], refused: dict[str, str]) -> dict[str, Any]:
    """Give the probes there are, and the modules that do not load."""
    probes = [asdict(spec) for spec in specs]
    return {"schema_version": SCHEMA_VERSION, "probes": probes, "refused": refused}


def _result(result: Result) -> dict[str, Any]:
    return {**asdict(result), "spread": result.spread}
