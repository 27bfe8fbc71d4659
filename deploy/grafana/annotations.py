"""What is marked in every panel: drivers that were replaced, alerts, restarts.

The three texts below the expression are fields of Grafana's Prometheus annotations that the library
does not know; they go into the JSON beside those that it does.
"""

from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model

from deploy.grafana.parts import BLUE, DATASOURCE, GREY, ORANGE, RED
from deploy.grafana.selecting import FLEET, of


class _Query(model.AnnotationQuery):
    """The library's, with what only Prometheus' has."""

    title = text = tags = ""
    value_is_time = False

    def to_json(self) -> dict[str, Any]:
        """Give the fields as Grafana calls them."""
        more = {"titleFormat": self.title, "textFormat": self.text, "tagKeys": self.tags}
        timed = {"useValueForTime": "on"} if self.value_is_time else {}
        return {**super().to_json(), "step": "60s", **more, **timed}


@dataclass(frozen=True, slots=True)
class Mark(Builder[model.AnnotationQuery]):
    """One kind of mark. Of ``value_is_time`` the expression is the moment in milliseconds."""

    name: str
    colour: str
    expression: str
    title: str
    text: str = ""
    tags: str = ""
    value_is_time: bool = False
    shown: bool = True

    def build(self) -> model.AnnotationQuery:
        """Give it as the library wants it."""
        made = _Query(
            name=self.name,
            datasource=DATASOURCE,
            enable=self.shown,
            icon_color=self.colour,
            expr=self.expression,
        )
        made.title, made.text, made.tags = self.title, self.text, self.tags
        made.value_is_time = self.value_is_time
        return made


def of_machine() -> list[Mark]:
    """Give the marks of one machine."""
    changed = of("gpud_change_timestamp_seconds", 'kind="driver_version"')
    other = of("gpud_change_timestamp_seconds", 'kind!="driver_version"')
    return [
        Mark(
            "Driver replaced",
            BLUE,
            f"{changed} * 1000",
            "Driver {{to}}",
            "What is slower from here on is judged against the level before.",
            "to",
            value_is_time=True,
        ),
        Mark(
            "Other changes",
            GREY,
            f"{other} * 1000",
            "{{kind}}: {{to}}",
            tags="kind",
            value_is_time=True,
            shown=False,
        ),
        Mark(
            "gpud started",
            GREY,
            f"{of('gpud_start_time_seconds')} * 1000",
            "gpud started",
            value_is_time=True,
            shown=False,
        ),
        Mark(
            "Alerts",
            RED,
            f"sum by (alertname, severity) ({of('gpud_alerts_firing')}) > 0",
            "{{alertname}}",
            "gpud alerts has the evidence and what to do.",
            "severity",
        ),
        Mark(
            "Machine paused",
            ORANGE,
            f"increase({of('gpud_vm_paused_seconds_total')}[$__rate_interval]) > 5",
            "The machine slept, or WSL was stopped",
            shown=False,
        ),
    ]


def of_fleet() -> list[Mark]:
    """Give the marks of a fleet: on its first machine only, a driver is news."""
    changed = of("gpud_change_timestamp_seconds", 'kind="driver_version"', by=FLEET)
    return [
        Mark(
            "Driver first seen",
            BLUE,
            f"min by (to) ({changed}) * 1000",
            "Driver {{to}} on the first machine",
            "GpudDriverSlowerThanBest compares it once five machines have it.",
            "to",
            value_is_time=True,
        ),
    ]
