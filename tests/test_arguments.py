"""Command-line arguments: moments, numbers, help on one screen, and the fix for a wrong word."""

from __future__ import annotations

import argparse
import importlib
import math
import time
from datetime import datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud import arguments, cli
from gpud.core.text import pasteable

if TYPE_CHECKING:
    from collections.abc import Mapping

NOW_S = 1_800_000_000.0


def parsers(verbs: Mapping[str, arguments.Verb] = arguments.VERBS, before: str = "") -> list[str]:
    """What is typed for every verb, and for every action of one."""
    names = []
    for name, verb in verbs.items():
        names += [f"{before}{name}", *parsers(verb.actions, f"{before}{name} ")]
    return names


@pytest.mark.parametrize(
    ("text", "at_s"),
    [
        ("90s", NOW_S - 90),
        ("30m", NOW_S - 1800),
        ("1.5h", NOW_S - 5400),
        ("3d", NOW_S - 3 * 86400),
        ("1w", NOW_S - 7 * 86400),
        ("2026-11-01T08:00:00Z", 1793520000.0),
        ("2026-11-01T08:00:00+02:00", 1793512800.0),
        ("2026-11-01", datetime(2026, 11, 1).astimezone().timestamp()),
        ("2026-11-01 08:00", datetime(2026, 11, 1, 8).astimezone().timestamp()),
    ],
)
def test_moment_is_read_as_people_write_it(
    text: str, at_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW_S)
    assert arguments.moment(text) == pytest.approx(at_s)


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2x", "-2h", "2 h", "²h", "2026-13-01", "9" * 40, "nan", "\x1b[31m"]
)
def test_text_that_is_no_moment_is_refused_with_examples(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="write 30m, 2h, 3d") as caught:
        arguments.moment(text)
    assert str(caught.value).isprintable()


@given(st.text(max_size=20))
def test_any_text_is_a_finite_moment_or_refused(text: str) -> None:
    try:
        at_s = arguments.moment(text)
    except argparse.ArgumentTypeError:
        return
    assert math.isfinite(at_s)


@pytest.mark.parametrize("name", parsers())
def test_help_of_every_verb_is_one_screen(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main([*name.split(), "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80


def test_help_lists_the_most_used_first_and_every_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main([]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.index("  status") < shown.err.index("  doctor") < shown.err.index("  up ")
    for code, meaning in arguments.EXIT_CODES.items():
        assert f"{code} {meaning}" in " ".join(shown.err.split())


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("statsu", "gpud --help"),
        ("logs --level warn", "gpud logs --help"),
        ("nonsense", "gpud --help"),
        ("history --limit x", "gpud history --help"),
        ("status --jsno", "gpud status --help"),
        ("logs --since then", "gpud logs --help"),
        ("history export --hourley", "gpud history export --help"),
        ("config", "gpud config --help"),
        ("completion nush", "gpud completion --help"),
        ("gpus", "gpud gpus --help"),
        ("status --watch 0", "gpud status --help"),
        ("status --json --watch", "gpud status --help"),
        *(
            (f"probe --repeat={n}", "gpud probe --help")
            for n in ("0", "101", "-1", "1.5", "9" * 99)
        ),
    ],
)
def test_wrong_word_is_2_with_the_fix(
    line: str, fix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(line.split()) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("gpud: ")
    assert shown.err.endswith(f"  fix: {fix}\n")


def test_wrong_word_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["\x1b[2J", "x"]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_words_before_export_hold_for_it_unless_they_are_given_again() -> None:
    read = arguments.parser().parse_args(
        ["history", "--probe", "launch", "--gpu", "0", "export", "--gpu", "cpu"]
    )
    assert (read.action, read.probe, read.gpu) == ("export", ["launch"], ["cpu"])


@pytest.mark.parametrize("verb", arguments.VERBS)
def test_every_verb_has_a_module_and_is_a_command_in_texts(verb: str) -> None:
    if verb != "version":
        assert importlib.import_module(f"gpud.verbs.{cli.MODULES.get(verb, verb)}").run
    words = f"`sudo gpud {verb}`; gpud {verb}s, /opt/gpud {verb}"
    shown = pasteable(words, ["/a b/gpud", "--home", "/h"])
    assert shown == f"`sudo '/a b/gpud' --home /h {verb}`; gpud {verb}s, /opt/gpud {verb}"
