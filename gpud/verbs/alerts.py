"""``gpud alerts``: what is wrong now, since when and why; acknowledgements; test alerts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpud import client, output
from gpud.arguments import OK, PROBLEM
from gpud.core.text import pasteable
from gpud.document.status import read
from gpud.place import as_the_agent, document
from gpud.requests import AckRequest, AlertLine
from gpud.show import headline

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from gpud.document.alerts import AlertReport
    from gpud.document.status import Status
    from gpud.place import Place


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
    status = read(published)
    alerts = chosen(status, ended=options.all)
    if options.json:
        rows = msgspec.to_builtins(alerts)
        print(json.dumps({"schema_version": status.schema_version, "alerts": rows}), flush=True)
    else:
        print(pasteable(drawn(alerts, status), place.program), end="", flush=True)
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


def chosen(status: Status, *, ended: bool) -> list[AlertReport]:
    """Return the alerts, those that fire first; those that ended only if ``ended``."""
    alerts = [alert for alert in status.alerts if ended or alert.ends_s is None]
    return sorted(alerts, key=lambda alert: (alert.ends_s is not None, -alert.starts_s))


def drawn(alerts: Sequence[AlertReport], status: Status) -> str:
    """Draw the cards that page and screen have, with what else only the page has room for."""
    firing = sum(alert.ends_s is None for alert in alerts)
    count = {0: "no alert fires", 1: "1 alert fires"}.get(firing, f"{firing} alerts fire")
    cards = [output.drawn(headline.card(status, alert), details=True) for alert in alerts]
    return "\n".join([f"{count}\n", *cards])
