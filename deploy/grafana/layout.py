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
    """Panels below a heading. A collapsed row asks nothing until it is opened."""

    title: str
    panels: tuple[Panel, ...]
    collapsed: bool


def row(title: str, *panels: Panel, collapsed: bool = False) -> Row:
    """Give a row of the dashboard; ``arranged`` places its panels."""
    return Row(title, panels, collapsed)


def elsewhere(title: str, uid: str) -> dashboard.DashboardLink:
    """Give a link to another dashboard that takes the time and the data source along."""
    return (
        dashboard.DashboardLink(title)
        .type(model.DashboardLinkType.LINK)
        .icon("dashboard")
        .url(f"/d/{uid}?var-datasource=${{datasource}}")
        .keep_time(True)
    )


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
        y = _in_columns(panels, order * 100, y + 1)
        heading = model.RowPanel(
            title=each.title,
            id_val=order * 100,
            grid_pos=place,
            collapsed=each.collapsed,
            panels=panels if each.collapsed else [],
        )
        placed += [heading] if each.collapsed else [heading, *panels]
        y = place.y + 1 if each.collapsed else y
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
