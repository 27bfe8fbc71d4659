"""The page: the document of /api/v1/status as HTML. Pure."""

from __future__ import annotations

import html
import time
from typing import Any

from gpud.core import gpu_table
from gpud.core.stats import figure


def page(document: dict[str, Any]) -> str:
    """Write the whole page; every text is escaped on its way in."""

    def cell(value: object) -> str:
        return html.escape("" if value is None else str(value))

    health = "".join(
        f"<tr><th scope=row>{cell(name)}<td>{cell(('ok', 'degraded', 'failed')[entry['level']])}"
        f"<td>{cell(entry['detail'])}<td>{cell(entry['fix'])}"
        for name, entry in sorted(document["health"].items())
    )
    figures = "".join(
        f"<tr><th scope=row>{cell(state['probe'])}<td>"
        f"{'CPU' if state['gpu'] is None else 'GPU ' + cell(state['gpu'])}"
        f"<td>{cell(sample['mode'])}<td>{figure(sample)}"
        f"<td>{cell(', '.join(state['flags']))}"
        for state in document["probes"]
        for sample in state["samples"]
    )
    gpus = "".join(
        "<tr>" + "".join(f"<td>{cell(value)}" for value in row) for row in gpu_table.rows(document)
    )
    if gpus:
        heads = "".join(f"<th scope=col>{cell(heading)}" for heading in gpu_table.HEADINGS)
        source = gpu_table.source(document, document["written_s"])
        gpus = f"""<h2>GPUs</h2>
<p>{cell(gpu_table.versions(document))}; telemetry from {cell(source)}</p>
<table><tr>{heads}{gpus}</table>
<p>{cell(gpu_table.missing(document))}</p>"""
    alerts = "".join(
        f"<tr><th scope=row>{cell(alert['severity'])}<td>{cell(alert['summary'])}"
        f"<td>{time.strftime('%Y-%m-%d %H:%M', time.localtime(alert['starts_s']))}"
        f"<td>{cell(alert['fix'])}"
        f"<td>{'yes' if alert['acknowledged_s'] is not None else ''}"
        for alert in document["alerts"]
        if alert["firing"]
    )
    if alerts:
        alerts = f"""<h2>Alerts</h2>
<table><tr><th scope=col>severity<th scope=col>what<th scope=col>since<th scope=col>fix
<th scope=col>acknowledged{alerts}</table>"""
    changed = "".join(
        f"<tr><th scope=row>{time.strftime('%Y-%m-%d %H:%M', time.localtime(at_s))}"
        f"<td>{cell(', '.join(words))}"
        for at_s, words in reversed(gpu_table.changes(document))
    )
    if changed:
        changed = f"""<h2>Changes</h2>
<table><tr><th scope=col>when<th scope=col>what{changed}</table>"""
    left_out = "".join(
        f"<tr><th scope=row>{cell(one['probe'])}<td>"
        f"{'' if one['gpu'] is None else 'GPU ' + cell(one['gpu'])}"
        f"<td>{cell(one['reason'].replace('_', ' '))}<td>{cell(one['count'])}"
        for one in document["put_off"]
    )
    if left_out:
        left_out = f"""<h2>Left out</h2>
<table><tr><th scope=col>probe<th scope=col>on<th scope=col>because
<th scope=col>times in a row{left_out}</table>"""
    return f"""<!doctype html>
<html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width">
<title>gpud: {cell(document["state"])}</title>
<style>
:root {{ color-scheme: light dark; font-family: system-ui, sans-serif }}
body {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem }}
table {{ border-collapse: collapse; width: 100% }}
th, td {{ text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #8884 }}
</style>
<h1>gpud: {cell(document["state"])}</h1>
{alerts}
<h2>Health</h2>
<table><tr><th scope=col>component<th scope=col>state<th scope=col>because<th scope=col>fix{health}
</table>
{gpus}
{changed}
<h2>Last figures</h2>
<table><tr><th scope=col>probe<th scope=col>on<th scope=col>mode
<th scope=col>median<th scope=col>marks{figures}</table>
{left_out}
<p><a href="/metrics">metrics</a> · <a href="/api/v1/status">status</a> ·
<a href="/api/v1/events">events</a> ·
<a href="/api/v1/alerts?since=0">alerts</a> ·
gpud {cell(document["version"])}</p></html>
"""
