"""The man page: made from the table of verbs, current, and read by man without a warning."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpud import arguments
from gpud.core.settings import Settings

SCRIPT = Path(__file__).resolve().parents[2] / "deploy/manpage.py"
PAGE = SCRIPT.with_name("gpud.1")


def loaded() -> Any:
    spec = importlib.util.spec_from_file_location("manpage", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


manpage = loaded()


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


def test_committed_page_is_what_the_table_says() -> None:
    assert PAGE.read_text() == manpage.page(), "run .venv/bin/python deploy/manpage.py"


@pytest.mark.skipif(shutil.which("man") is None, reason="needs man-db")
def test_man_reads_it_without_a_warning() -> None:
    line = ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", str(PAGE)]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_every_verb_option_exit_code_and_folder_is_on_it() -> None:
    shown = rendered(PAGE.read_text())
    for name, verb in arguments.VERBS.items():
        section = shown.partition(f"   gpud {name}")[2]
        for flag in (word for group in verb.groups for names, _ in group for word in names):
            assert flag in section or not flag.startswith("-"), (name, flag)
    for code, meaning in arguments.EXIT_CODES.items():
        assert re.search(rf"^ +{code} +{meaning}\.$", shown, re.MULTILINE | re.IGNORECASE)
    settings = Settings()
    assert {settings.state_dir, settings.run_dir, settings.log_dir} <= set(manpage.FILES)


def test_every_example_can_be_typed() -> None:
    for command in manpage.EXAMPLES:
        words = command.removeprefix("sudo ").split()
        assert words[0] == "gpud"
        arguments.parser().parse_args(words[1:])


def test_no_word_of_a_text_is_taken_for_a_request() -> None:
    for text in (".TH x - isn't \\fB-y\\fR `z`", "'so /etc/passwd"):
        shown = rendered(f".TH GPUD 1\n.SH NAME\nx\n.SH Y\n{manpage.escaped(text)}\n")
        assert text in shown
