"""The house style: every kind of panel as a function of what it is about.

Widths are columns of 24, heights are Grafana's units of 30 pixels. Each panel says what it shows,
what good looks like and what to do otherwise; its unit is one of Grafana's identifiers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeVar

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import (
    dashboard,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import heatmap as heatmap_model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DATASOURCE: Final = model.DataSourceRef(type_val="prometheus", uid="${datasource}")

GREEN, ORANGE, RED, BLUE, GREY = "green", "orange", "red", "blue", "#808080"

NOT_NAMED: Final = frozenset(
    {*("Time", "job", "probe", "mode", "Value"), *(f"Value #{letter}" for letter in "ABCD")}
)
"""Columns of every table that are shown only where they have a heading."""

AnyPanel = TypeVar(
    "AnyPanel", timeseries.Panel, stat.Panel, table.Panel, statetimeline.Panel, heatmap.Panel
)
Panel = timeseries.Panel | stat.Panel | table.Panel | statetimeline.Panel | heatmap.Panel
Mapped = Mapping[int, tuple[str, str]]


class Style(Enum):
    """How a graph is drawn."""

    FROM_ZERO = auto()
    FREE = auto()
    LOGARITHMIC = auto()
    STACKED = auto()
    BARS = auto()


@dataclass(frozen=True, slots=True)
class Query:
    """One expression; ``legend`` is a template over its labels. ``at_once`` asks for now alone."""

    expression: str
    legend: str = ""
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """The title of a panel, what it shows and what to do, its unit, the alert of its runbook."""

    title: str
    description: str
    unit: str
    runbook: str = ""


def graph(
    text: Text,
    *queries: Query,
    style: Style = Style.FROM_ZERO,
    width: int = 12,
    height: int = 8,
    every: str = "",
) -> timeseries.Panel:
    """Draw series over time; a gap stays a gap. ``every`` is the least width of a step."""
    panel = _described(timeseries.Panel(), text, queries, PromQueryFormat.TIME_SERIES)
    panel.span(width).height(height).line_width(1)
    panel.show_points(common.VisibilityMode.AUTO).span_nulls(False)
    panel.legend(
        common_builders.VizLegendOptions()
        .show_legend(True)
        .display_mode(common.LegendDisplayMode.TABLE)
        .placement(common.LegendPlacement.BOTTOM)
        .calcs(["lastNotNull", "max"])
    )
    panel.tooltip(
        common_builders.VizTooltipOptions()
        .mode(common.TooltipDisplayMode.MULTI)
        .sort(common.SortOrder.DESCENDING)
    )
    match style:
        case Style.FROM_ZERO:
            panel.min(0)
        case Style.LOGARITHMIC:
            scale = common_builders.ScaleDistributionConfig().type(common.ScaleDistribution.LOG)
            panel.scale_distribution(scale.log(10))
        case Style.STACKED:
            stacking = common_builders.StackingConfig().mode(common.StackingMode.NORMAL)
            panel.min(0).fill_opacity(70).stacking(stacking.group("A"))
        case Style.BARS:
            panel.min(0).fill_opacity(70).draw_style(common.GraphDrawStyle.BARS)
        case Style.FREE:
            pass
    return panel.interval(every) if every else panel


def dashed(panel: timeseries.Panel, *queries: str) -> timeseries.Panel:
    """Dash the lines of some queries, "B" for the second: what others are compared with."""
    style = {"fill": "dash", "dash": [8, 6]}
    for query in queries:
        value = model.DynamicConfigValue(id_val="custom.lineStyle", value=style)
        panel.override_by_query(query, [value])
    return panel


def cpu_by_name(panel: timeseries.Panel) -> timeseries.Panel:
    """Call a line of a probe that has no GPU by its probe and mode."""
    for regexp, name in (("/^usual: .* GPU ?$/", "usual: "), ("/^[^:]* GPU ?$/", "")):
        shown = f"{name}${{__field.labels.probe}} ${{__field.labels.mode}}"
        value = model.DynamicConfigValue(id_val="displayName", value=shown)
        panel.override_by_regexp(regexp, [value])
    return panel


def lined(panel: timeseries.Panel, *steps: tuple[float, str]) -> timeseries.Panel:
    """Draw a dashed line at each threshold, in its colour; below the first all is well."""
    style = common_builders.GraphThresholdsStyleConfig().mode(
        common.GraphThresholdsStyleMode.DASHED
    )
    return panel.thresholds(_steps([(None, "transparent"), *steps])).thresholds_style(style)


def number(
    text: Text,
    query: Query,
    *,
    steps: Iterable[tuple[float | None, str]] = ((None, BLUE),),
    mapped: Mapped | None = None,
    absent: str = "not scraped",
) -> stat.Panel:
    """Show a value large, or ``absent`` where there is none.

    Asked for now alone: over a range the latest of hours ago would stand there as if it were of
    now, and beside the driver in force the one before.
    """
    now = Query(query.expression, query.legend, at_once=True)
    panel = _described(stat.Panel(), text, [now], PromQueryFormat.TIME_SERIES)
    panel.span(4).height(4).no_value(absent).graph_mode(common.BigValueGraphMode.NONE)
    panel.color_mode(common.BigValueColorMode.BACKGROUND_SOLID).thresholds(_steps(steps))
    panel.reduce_options(common_builders.ReduceDataOptions().values(False).calcs(["lastNotNull"]))
    return panel.text_mode(common.BigValueTextMode.VALUE).mappings(_mappings(mapped))


def label(text: Text, query: Query, *, absent: str = "not scraped") -> stat.Panel:
    """Show a label large: the legend of the query."""
    return number(text, query, absent=absent).text_mode(common.BigValueTextMode.NAME)


def states(
    text: Text, *queries: Query, mapped: Mapped, width: int = 12, height: int = 8
) -> statetimeline.Panel:
    """Draw a row for each series, coloured by its value."""
    panel = _described(statetimeline.Panel(), text, queries, PromQueryFormat.TIME_SERIES)
    panel.span(width).height(height).mappings(_mappings(mapped)).row_height(0.9).line_width(0)
    panel.merge_values(True).show_value(common.VisibilityMode.NEVER)
    panel.legend(
        common_builders.VizLegendOptions()
        .show_legend(True)
        .display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM)
    )
    return panel.thresholds(_steps([(None, GREY)]))


def rows(
    text: Text,
    *queries: Query,
    named: Mapping[str, str],
    width: int = 12,
    height: int = 8,
    absent: str = "none, or not scraped",
) -> table.Panel:
    """Show labels and values as a table.

    ``named`` gives the columns: label, or "Value" (of several queries "Value #A"), to its heading;
    what is not named is left out. Queries are asked for now alone, and their lines joined by label.
    """
    now = [Query(query.expression, query.legend, at_once=True) for query in queries]
    panel = _described(table.Panel(), text, now, PromQueryFormat.TABLE)
    panel.span(width).height(height).no_value(absent).show_header(True).filterable(True)
    panel.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    panel.with_transformation(
        model.DataTransformerConfig(
            id_val="organize",
            options={
                "excludeByName": dict.fromkeys(sorted(NOT_NAMED - named.keys()), True),
                "indexByName": {name: place for place, name in enumerate(named)},
                "renameByName": dict(named),
            },
        )
    )
    return panel


def worst_first(panel: table.Panel, column: str) -> table.Panel:
    """Sort a table by a column, the largest value on top."""
    return panel.sort_by([common_builders.TableSortByFieldState().display_name(column).desc(True)])


def heat(text: Text, query: Query, *, every: str) -> heatmap.Panel:
    """Draw the buckets of a histogram over time; ``every`` is the least width of a step."""
    panel = _described(heatmap.Panel(), text, [query], PromQueryFormat.HEATMAP)
    panel.span(12).height(9).calculate(False).cell_gap(0).show_y_histogram()
    panel.y_axis(heatmap.YAxisConfig().unit(text.unit).axis_placement(common.AxisPlacement.LEFT))
    panel.color(
        heatmap.HeatmapColorOptions()
        .mode(heatmap_model.HeatmapColorMode.SCHEME)
        .scheme("Spectral")
        .steps(64)
        .exponent(0.5)
        .fill("dark-orange")
        .reverse(False)
    )
    panel.filter_values(heatmap.FilterValueRange().le(1e-9))
    return panel.interval(every)


def columns(
    panel: table.Panel, *names: str, above: tuple[float, str] | None = None, **properties: object
) -> table.Panel:
    """Give columns of a table properties of their own, and a colour ``above`` a threshold."""
    if above is not None:
        steps = [{"value": None, "color": "text"}, {"value": above[0], "color": above[1]}]
        properties["thresholds"] = {"mode": "absolute", "steps": steps}
        properties["custom.cellOptions"] = {"type": "color-text"}
    for name in names:
        values = [model.DynamicConfigValue(id_val=key, value=properties[key]) for key in properties]
        panel.override_by_name(name, values)
    return panel


def leading(panel: table.Panel, column: str, **links: str) -> table.Panel:
    """Make the cells of a column lead elsewhere; ``${__value.raw}`` in an address is the cell."""
    made = [{"title": title.replace("_", " "), "url": url} for title, url in links.items()]
    return columns(panel, column, links=made)


def _described(
    panel: AnyPanel, text: Text, queries: Iterable[Query], form: PromQueryFormat
) -> AnyPanel:
    panel.title(text.title).description(text.description).datasource(DATASOURCE)
    panel.unit(text.unit)
    if text.runbook:
        link = dashboard.DashboardLink(f"Runbook: {text.runbook}").target_blank(True)
        url = f"http://${{instance}}/runbooks/{text.runbook}"
        panel.links([link.type(model.DashboardLinkType.LINK).url(url)])
    for letter, query in zip("ABCDEFGH", queries, strict=False):
        target = prometheus.Dataquery().ref_id(letter).datasource(DATASOURCE)
        target.expr(query.expression).legend_format(query.legend or "__auto").format(form)
        panel.with_target(target.instant() if query.at_once else target.range())
    return panel


def _steps(steps: Iterable[tuple[float | None, str]]) -> dashboard.ThresholdsConfig:
    return (
        dashboard.ThresholdsConfig()
        .mode(model.ThresholdsMode.ABSOLUTE)
        .steps([model.Threshold(value=value, color=colour) for value, colour in steps])
    )


def _mappings(mapped: Mapped | None) -> list[model.ValueMapping]:
    if not mapped:
        return []
    options = {
        str(value): model.ValueMappingResult(text=text, color=colour, index=order)
        for order, (value, (text, colour)) in enumerate(mapped.items())
    }
    return [model.ValueMap(options=options)]
