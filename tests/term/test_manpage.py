"""The man page: made from the parser, current, and read by man without a warning."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpud import arguments
from gpud.core.settings import Settings, entries
from gpud.term import manpage

PAGE = Path(__file__).resolve().parents[2] / "deploy/gpud.1"


def rendered(text: str) -> str:
    done = subprocess.run(
        ["groff", "-man", "-Kutf8", "-Tutf8", "-ww", "-rLL=200n", "-P-c"],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return re.sub(".\b", "", done.stdout)


def test_the_committed_page_is_what_the_parser_says() -> None:
    fresh = manpage.drawn(arguments.parser(), arguments.EXIT_CODES)
    assert PAGE.read_text() == fresh, "run .venv/bin/python deploy/manpage.py"


@pytest.mark.skipif(shutil.which("man") is None, reason="needs man-db")
def test_man_reads_it_without_a_warning() -> None:
    line = ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", str(PAGE)]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_every_verb_and_every_option_is_on_it() -> None:
    shown = rendered(PAGE.read_text())
    verbs = next(
        action
        for action in arguments.parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    ).choices
    for name, verb in verbs.items():
        section = shown.partition(f"   gpud {name}")[2]
        assert section, name
        for flag in (flag for action in verb._actions for flag in action.option_strings):
            assert flag in section or flag in {"-h", "--help"}
    for code, meaning in arguments.EXIT_CODES.items():
        assert re.search(rf"^ +{code} +{meaning}\.$", shown, re.MULTILINE | re.IGNORECASE)


def test_what_the_page_says_of_files_is_where_the_settings_put_them() -> None:
    settings = Settings()
    for path in (settings.state_dir, settings.run_dir, settings.log_dir):
        assert path in manpage.FILES
    known = {key for key, _ in entries(settings)}
    assert "http.listen" in known  # the example of a setting in the environment


def test_every_example_can_be_typed() -> None:
    for command in manpage.EXAMPLES:
        words = command.removeprefix("sudo ").split()
        assert words[0] == "gpud"
        arguments.parser().parse_args(words[1:])


def test_no_word_of_a_help_text_is_taken_for_a_request() -> None:
    parser = argparse.ArgumentParser(prog="gpud", description=".TH x - isn't \\fB-y\\fR `z`")
    parser.add_argument("--evil", metavar="A-B", help=".so /etc/passwd")
    shown = rendered(manpage.drawn(parser, {0: "well"}))
    assert ".TH x - isn't \\fB-y\\fR `z`" in shown
    assert "--evil A-B" in shown
    assert ".so /etc/passwd." in shown
