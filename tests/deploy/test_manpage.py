"""The man page: made from the table of verbs, current, and read by man without a warning."""

from __future__ import annotations

import re
import shutil
import subprocess

from gpud import arguments
from gpud.core.settings import Settings
from tests.deploy.installing import ROOT, loaded

PAGE = ROOT / "deploy/gpud.1"


manpage = loaded("manpage")


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
    if shutil.which("man"):
        line = ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", str(PAGE)]
        assert subprocess.run(line, capture_output=True, check=True).stderr == b""


def test_every_verb_option_exit_code_and_folder_is_on_it() -> None:
    shown = rendered(PAGE.read_text())
    for name, verb in arguments.VERBS.items():
        section = shown.partition(f"   gpud {name}")[2]
        for flag in (word for group in verb.groups for names, _ in group for word in names):
            assert flag in section or not flag.startswith("-"), (name, flag)
    for code, meaning in arguments.EXIT_CODES.items():
        assert re.search(rf"^ +{code} +{meaning}\.$", shown, re.MULTILINE | re.IGNORECASE)
    for command in manpage.EXAMPLES:
        words = command.removeprefix("sudo ").split()
        assert words[0] == "gpud"
        arguments.parser().parse_args(words[1:])
    settings = Settings()
    assert {settings.state_dir, settings.run_dir, settings.log_dir} <= set(manpage.FILES)


def test_no_word_of_a_text_is_taken_for_a_request() -> None:
    for text in (".TH x - isn't \\fB-y\\fR `z`", "'so /etc/passwd"):
        shown = rendered(f".TH GPUD 1\n.SH NAME\nx\n.SH Y\n{manpage.escaped(text)}\n")
        assert text in shown
