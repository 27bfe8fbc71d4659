"""From the code to the files."""

from pathlib import Path
from typing import Any, Final

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.grafana import fleet, machine, variables

FOLDER: Final = Path(__file__).parent / "dashboards"
GRAFANA: Final = "11.6.0"
PANELS: Final = {
    "heatmap": "Heatmap",
    "stat": "Stat",
    "state-timeline": "State timeline",
    "table": "Table",
    "timeseries": "Time series",
}


def files() -> dict[Path, str]:
    """Give each dashboard's file with what belongs into it."""
    encoder = JSONEncoder(indent=2, sort_keys=True)
    made = {"machine": machine.build(), "fleet": fleet.build()}
    return {
        FOLDER / f"{name}.json": encoder.encode(_published(each)) + "\n"
        for name, each in made.items()
    }


def _published(made: dashboard.Dashboard) -> dict[str, Any]:
    """Add what grafana.com asks for; a dashboard is known by its `uid` and has no `id` yet."""
    document = made.build().to_json()
    source = {"type": "datasource", "id": "prometheus", "name": "Prometheus", "version": "1.0.0"}
    panels = [
        {"type": "panel", "id": kind, "name": PANELS[kind], "version": ""}
        for kind in sorted({panel.type_val for panel in made.build().panels or []} - {"row"})
    ]
    given = {
        "name": variables.INPUT[2:-1],
        "label": "Prometheus",
        "description": "The Prometheus that scrapes gpud",
        "type": "datasource",
        "pluginId": "prometheus",
        "pluginName": "Prometheus",
    }
    grafana = {"type": "grafana", "id": "grafana", "name": "Grafana", "version": GRAFANA}
    return {"__inputs": [given], "__requires": [grafana, *panels, source], **document, "id": None}
