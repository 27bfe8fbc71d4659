"""What an expression of PromQL is made of."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import promql_parser as promql

from tests.grafana.dashboards import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

RATE_INTERVAL, RANGE = timedelta(seconds=11), timedelta(seconds=13)
"""What stands for Grafana's two intervals, so that they are told from a written one."""
STAND_INS: Final = {"__rate_interval": "11s", "__range": "13s"}


@dataclass(frozen=True, slots=True)
class Selected:
    """Series that are selected: with which matchers, over how long, and inside of what."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]  # label, operator, value
    span: timedelta | None
    inside: tuple[str, ...]  # functions and aggregations, the outermost first


@functools.cache
def parsed(expression: str) -> promql.Expr:
    """Parse it, with the variables that are no intervals as they are.

    Errors: ``ValueError`` where it is no PromQL.
    """
    text = VARIABLE.sub(lambda found: STAND_INS.get(found[1] or found[2], found[0]), expression)
    return promql.parse(text)


def nodes(expression: Any, inside: tuple[str, ...] = ()) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Give every part with the names of what is around it."""
    yield expression, inside
    match expression:
        case promql.Call():
            for argument in expression.args:
                yield from nodes(argument, (*inside, expression.func.name))
        case promql.AggregateExpr():
            yield from nodes(expression.expr, (*inside, str(expression.op)))
        case promql.BinaryExpr():
            yield from nodes(expression.lhs, inside)
            yield from nodes(expression.rhs, inside)
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            yield from nodes(expression.expr, inside)


@functools.cache
def selected(expression: str) -> tuple[Selected, ...]:
    """Give every selection of series."""
    return tuple(_selected(parsed(expression)))


def _selected(expression: promql.Expr) -> Iterator[Selected]:
    for node, inside in nodes(expression):
        match node:
            case promql.VectorSelector():
                yield _selection(node, None, inside)
            case promql.MatrixSelector():
                yield _selection(node.vector_selector, node.range, inside)


def _selection(
    selector: promql.VectorSelector, span: timedelta | None, inside: tuple[str, ...]
) -> Selected:
    matchers = re.findall(r'(\w+)(=~|!~|!=|=)"((?:[^"\\]|\\.)*)"', str(selector.matchers))
    return Selected(selector.name or "", tuple(matchers), span, inside)


@functools.cache
def labels(expression: str) -> frozenset[str]:
    """Give the labels that are grouped and joined by."""
    found: set[str] = set()
    for node, _ in nodes(parsed(expression)):
        match node:
            case promql.AggregateExpr() if node.modifier:
                found.update(node.modifier.labels)
            case promql.BinaryExpr() if node.modifier:
                if node.modifier.matching:
                    found.update(node.modifier.matching.labels)
                found.update(node.modifier.group_labels or ())
    return frozenset(found)
