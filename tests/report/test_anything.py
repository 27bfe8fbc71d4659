"""Whatever a history holds: every way of showing it comes to its end, and nothing foreign acts."""

from __future__ import annotations

import json
from datetime import UTC
from xml.etree import ElementTree as ET

from hypothesis import given, settings
from hypothesis import strategies as st

from gpud.core.sample import Flag, Unit
from gpud.core.streams import StreamKey
from gpud.report import command, page, text
from gpud.report.build import build
from gpud.report.rows import BEYOND, Column, Finding, Moment, Rows, Run

UNTIL_S = 1_760_000_000.0
words = st.text(max_size=30) | st.sampled_from(["572.16", "<b>", "a" * 300, "\ud800", "\x1b[2J"])
moments = st.floats(UNTIL_S - 30 * 86400, UNTIL_S - 1)
figures = st.floats(0, BEYOND, exclude_max=True) | st.sampled_from([1e-5, 1.1e-5, 1.2e-5, 4e11])
bodies = st.dictionaries(
    st.sampled_from(
        ["state", "kind", "effect", "old_driver", "new_driver", "since_s", "seq", "closes", "worse"]
    ),
    st.sampled_from(["regressed", "driver", {"ratio": 1.2, "low": 1.1, "high": 0.0}, [3], 7.5e9])
    | words
    | st.floats(),
)
alerts = st.fixed_dictionaries(
    {"starts_s": st.floats(-1e18, 1e18), "ends_s": st.none() | st.floats(-1e18, 1e18)},
    optional={
        "name": st.sampled_from(["GpudSlowdown", 7]),
        "summary": words,
        "fix": words | st.none(),
        "evidence": st.sampled_from([None, [3], [{"stream": {"gpu": 1}}], [{"stream": [[]]}]]),
    },
)


@st.composite
def histories(draw: st.DrawFn) -> Rows:
    gpu = draw(st.none() | words)
    runs = tuple(
        Run(
            at_s,
            draw(st.sampled_from(["one", "two"])),
            draw(words),
            gpu,
            draw(st.floats(0, 1e6)),
            draw(st.none() | st.tuples(words, words)),
            draw(words),
            draw(st.frozensets(st.sampled_from([*Flag, "unheard_of"]))),
        )
        for at_s in draw(st.lists(moments, max_size=12))
    )
    keys = st.builds(StreamKey, st.just(gpu), words, words, st.integers(1, 2), st.booleans())
    columns = {}
    for key in draw(st.lists(keys, max_size=3)):
        columns[key] = made = Column(draw(st.sampled_from(Unit)))
        for place in range(len(runs)):
            made.add(place, draw(figures), draw(st.floats(0.1, 9)), apart=draw(st.booleans()))
    found = st.tuples(
        *[st.lists(st.builds(Finding, st.sampled_from(list(columns)), moments, bodies), max_size=3)]
        * 2
    )
    verdicts, alarms = draw(found) if columns else ([], [])
    return Rows(
        runs,
        tuple(Moment(run.at_s, run.driver) for run in runs),
        columns,
        names={gpu: draw(words)} if gpu is not None else {},
        alerts=tuple(draw(st.lists(alerts, max_size=2))),
        verdicts=tuple(verdicts),
        alarms=tuple(alarms),
    )


@given(histories(), st.sampled_from([1.0, 30.0, 700.0]))
@settings(max_examples=60)
def test_any_history_can_be_shown(rows: Rows, days: float) -> None:
    since_s = UNTIL_S - days * 86400
    report = build(rows, since_s=since_s, until_s=UNTIL_S, file_bytes=7)
    lines = [line for line, _ in text.lines(report, UTC)]
    assert max(map(len, lines)) <= text.WIDTH
    assert not any(character in "".join(lines) for character in "\x1b\u202e\n")
    drawn = page.drawn(report, UTC)
    drawn.encode()
    root = ET.fromstring(drawn.partition("\n")[2].replace("\ufffe", "").replace("\uffff", ""))  # noqa: S314
    assert not any(element.tag in {"b", "script", "img"} for element in root.iter())
    json.loads(json.dumps(command.document(report)))
