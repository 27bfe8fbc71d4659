"""``gpud alerts``: what is wrong now, since when and why; acknowledgements; test alerts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpud import client, output
from gpud.arguments import OK, PROBLEM
from gpud.core.alerts import SHORT
from gpud.core.requests import AckRequest, AlertLine
from gpud.core.stats import human
from gpud.core.text import escaped, pasteable, rezoned
from gpud.place import as_the_agent, document, legible
from gpud.show.document import read
from gpud.show.units import moment, span
from gpud.show.words import cause_words
from gpud.verbs.baseline import published_rows, stream_name

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from gpud.place import Place
    from gpud.show.document import AlertReport, Status


def run(options: argparse.Namespace, place: Place) -> int:
    """Show the alerts (1 while one fires), acknowledge one, or test the sinks."""
    if options.action == "test":
        return _test(options, place)
    settings = place.usable_settings()
    if options.action == "ack":
        answer = client.ask_running(place, settings, AckRequest(alert=options.id))
        names = [line.fingerprint for line in answer if isinstance(line, AlertLine)]
        output.say(f"{names[0]} is acknowledged: no more reminders")
        return OK
    run_dir = Path(settings.run_dir)
    published = document(run_dir)
    if published is None:
        return place.report_absent(run_dir, as_json=options.json)
    with legible():
        status = read(published)
        alerts = chosen(status, ended=options.all)
        text = (
            _json(published, status, alerts) if options.json else "\n".join(lines(alerts, status))
        )
    print(text if options.json else pasteable(text, place.program), flush=True)
    return PROBLEM if any(alert.ends_s is None for alert in alerts) else OK


def _test(options: argparse.Namespace, place: Place) -> int:
    """Send a test alert as the agent's user, without asking a running agent."""
    place.root_only()
    settings = place.settings()
    as_the_agent(settings, place)
    from gpud.agent.alerts.sink import run_test

    report, code = run_test(settings, options.sink)
    output.say("\n".join(report))
    return code


def _json(published: dict[str, Any], status: Status, alerts: Sequence[AlertReport]) -> str:
    rows = published_rows(published.get("alerts"), status.alerts, alerts)
    return json.dumps({"schema_version": published["schema_version"], "alerts": rows})


def chosen(status: Status, *, ended: bool) -> list[AlertReport]:
    """Return the alerts, those that fire first; those that ended only if ``ended``."""
    alerts = [alert for alert in status.alerts if ended or alert.ends_s is None]
    return sorted(alerts, key=lambda alert: (alert.ends_s is not None, -alert.starts_s))


def lines(alerts: Sequence[AlertReport], status: Status) -> list[str]:
    """Describe alerts: what and how much, since when, the evidence, the causes, the fix."""
    firing = [alert for alert in alerts if alert.ends_s is None]
    names = _short([alert.fingerprint for alert in alerts])
    count = {0: "no alert fires", 1: "1 alert fires"}
    shown = [count.get(len(firing), f"{len(firing)} alerts fire")]
    for alert in alerts:
        shown += ["", *_alert(alert, names[alert.fingerprint], status)]
    pending = [alert for alert in firing if alert.acknowledged_s is None]
    if pending:
        name = names[pending[0].fingerprint]
        normal = f"   it is normal now: gpud baseline accept {name}" if pending[0].evidence else ""
        shown += ["", f"  seen it: gpud alerts ack {name}{normal}"]
    return [line for text in shown for line in output.wrapped(rezoned(escaped(text), moment))]


def _alert(alert: AlertReport, name: str, status: Status) -> Iterator[str]:
    times = f"since {moment(alert.began_s)}"
    if alert.ends_s is not None:
        times += f", ended {moment(alert.ends_s)}"
    if alert.acknowledged_s is not None:
        times += f", acknowledged {moment(alert.acknowledged_s)}"
    yield f"  {name}  {alert.name}, {alert.severity}, {times}"
    yield f"    {alert.summary}"
    for piece in alert.evidence:
        before, after = human(piece.before, piece.unit), human(piece.after, piece.unit)
        yield (
            f"    {status.place(piece.stream.gpu)} {stream_name(piece.stream)}: {before} -> {after}"
            f", {100 * (piece.slowdown - 1):.0f} % slower ({span(piece.low, piece.high)}), "
            f"{piece.samples} samples"
        )
    for cause in alert.causes:
        yield f"    because: {cause_words(cause)}"
    if alert.fix:
        yield f"    fix: {alert.fix}"


def _short(fingerprints: Sequence[str]) -> dict[str, str]:
    """Return what each fingerprint is called: its beginning, where that is like no other's."""
    begun = [name[:SHORT] for name in set(fingerprints)]
    return {name: name if begun.count(name[:SHORT]) > 1 else name[:SHORT] for name in fingerprints}
