"""Rows, and where their panels stand."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as model

from deploy.grafana.parts import Panel

COLUMNS: Final = 24


@dataclass(frozen=True, slots=True)
class Row:
    """Panels below a heading."""

    title: str
    panels: tuple[Panel, ...]


def row(title: str, *panels: Panel) -> Row:
    """Give a row of the dashboard; ``arranged`` places its panels."""
    return Row(title, panels)


def new(title: str, description: str, since: str, every: str) -> dashboard.Dashboard:
    """Begin a dashboard: the time it shows, how often it asks. Its `uid` is made of its title."""
    return (
        dashboard.Dashboard(title)
        .uid(title.replace(": ", "-"))
        .description(description)
        .tags(["gpud"])
        .readonly()
        .timezone("browser")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .time(since, "now")
        .refresh(every)
    )


def to_dashboard(title: str, uid: str) -> dashboard.DashboardLink:
    """Give a link to another dashboard that takes the time and the data source along."""
    url = f"/d/{uid}?var-datasource=${{datasource}}"
    return _link(title, url).icon("dashboard").keep_time(True)


def to_gpud(title: str, path: str) -> dashboard.DashboardLink:
    """Give a link to gpud's own page of the chosen machine."""
    return _link(title, f"http://${{instance}}{path}").icon("external link").target_blank(True)


def _link(title: str, url: str) -> dashboard.DashboardLink:
    return dashboard.DashboardLink(title).type(model.DashboardLinkType.LINK).url(url)


def arranged(made: dashboard.Dashboard, rows: Iterable[Row]) -> None:
    """Number and place what the rows hold, and add them to a dashboard.

    A panel's number is a hundred times that of its row and its place within: a link to a panel
    lives on when another row grows.
    """
    y = 0
    placed: list[model.Panel | model.RowPanel] = []
    for order, each in enumerate(rows, start=1):
        panels = [panel.build() for panel in each.panels]
        place = model.GridPos(x=0, y=y, w=COLUMNS, h=1)
        heading = model.RowPanel(title=each.title, id_val=order * 100, grid_pos=place, panels=[])
        placed += [heading, *panels]
        y = _in_columns(panels, order * 100, y + 1)
    made.build().panels = placed


def _in_columns(panels: list[model.Panel], number_of_row: int, y: int) -> int:
    x = tallest = 0
    for order, panel in enumerate(panels, start=1):
        place = panel.grid_pos or model.GridPos()
        if x + place.w > COLUMNS:
            x, y, tallest = 0, y + tallest, 0
        place.x, place.y = x, y
        x, tallest = x + place.w, max(tallest, place.h)
        panel.id_val, panel.grid_pos = number_of_row + order, place
    return y + tallest
