"""Committed files that are made of others: settings, man page, pins, pictures; they are current."""

from __future__ import annotations

import json
import os
import pwd
import re
import runpy
import shutil
import subprocess
import tomllib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from gpud import arguments
from gpud.core.settings import Settings, entries, parse
from gpud.install import places, plan
from gpud.install.setup import Done, Step
from gpud.install.source import Checkout
from tests.deploy.installing import ROOT, loaded

if TYPE_CHECKING:
    from pathlib import Path

TEXT = (ROOT / "deploy/gpud.toml").read_text()
reference = loaded("settings_reference")
KEYS = [key for key, _ in entries(Settings()) if "." in key]  # home and sysroot are for tests


def uncommented() -> bytes:
    return "\n".join(
        line[1:] if line.startswith("#") and not line.startswith("# ") else line
        for line in TEXT.splitlines()
    ).encode()


def test_every_setting_is_in_it_with_its_default() -> None:
    assert parse(TEXT.encode(), {}) == parse(uncommented(), {}) == Settings()
    named = uncommented().decode()
    for key, _ in entries(Settings()):
        section, _, name = key.rpartition(".")
        if not section:
            continue  # where the tree begins and where the machine is looked at: for tests
        body = named.partition(f"[{section}]\n")[2].partition("\n[")[0]
        assert any(line.startswith(f"{name} = ") for line in body.splitlines()), key


def test_reference_and_schema_are_what_the_settings_are() -> None:
    command = "run .venv/bin/python deploy/settings_reference.py"
    assert reference.PAGE.read_text() == reference.page(), command
    assert reference.SCHEMA.read_text() == reference.schema(), command


def test_reference_has_every_key_with_an_example_that_the_program_takes() -> None:
    assert sorted(reference.EXAMPLES) == sorted(KEYS)
    text = ""
    for key, example in reference.EXAMPLES.items():
        section, _, name = key.rpartition(".")
        text += f"[{section}]\n" * (f"[{section}]\n" not in text) + f"{name} = {example}\n"
    settings = parse(text.encode(), {})
    defaults = dict(entries(Settings()))
    assert [key for key, value in entries(settings) if value == defaults[key]] == [
        "home",
        "sysroot",
    ]
    jsonschema.validate(tomllib.loads(text), json.loads(reference.SCHEMA.read_text()))


@pytest.mark.parametrize(
    "text",
    ["[http]\nport = 1", '[dockerd]\npolicy = "on"', "[gate]\nquiet_hours = 3", "[http.tls]\n"],
)
def test_schema_refuses_what_the_program_refuses(text: str) -> None:
    schema = json.loads(reference.SCHEMA.read_text())
    jsonschema.validate(tomllib.loads(uncommented().decode()), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tomllib.loads(text), schema)


@pytest.mark.skipif(os.geteuid() != 0, reason="files of root's change their group")
@pytest.mark.parametrize("name", ["gpud.toml", "secrets.toml"])
def test_files_that_an_uninstall_kept_are_readable_for_the_agent_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup: Any = SimpleNamespace(source=Checkout(ROOT), console=SimpleNamespace(log="a log"))
    file = tmp_path / name
    for each in ("gpud.toml", "secrets.toml"):
        (tmp_path / each).write_text("# mine\n")
    file.chmod(0o640)
    monkeypatch.setattr(places, "CONFIG_DIR", tmp_path)
    monkeypatch.setattr(plan, "_agents_user", lambda: "nobody")
    (step,) = (step for step in plan.settings(setup) if isinstance(step, Step))
    assert step.title == f"{file} for root and the agent again"
    step.do()
    facts = file.stat()
    assert (facts.st_uid, facts.st_gid) == (0, pwd.getpwnam("nobody").pw_gid)
    assert (facts.st_mode & 0o777, file.read_text()) == (0o640, "# mine\n")
    assert Done(f"{file} (yours)") in list(plan.settings(setup))


MAN_PAGE = ROOT / "deploy/gpud.1"
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
    assert MAN_PAGE.read_text() == manpage.page(), "run .venv/bin/python deploy/manpage.py"
    if shutil.which("man"):
        line = ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", str(MAN_PAGE)]
        assert subprocess.run(line, capture_output=True, check=True).stderr == b""


def test_every_verb_option_exit_code_and_folder_is_on_it() -> None:
    shown = rendered(MAN_PAGE.read_text())
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


FILES = sorted(ROOT.glob("deploy/requirements*.txt"))
PIN = re.compile(r"(?P<name>[a-z0-9.-]+)==(?P<version>[^ ;]+)(?: ;[^\\]*)?(?P<hashes>.*)")


def requirements(path: Path) -> list[re.Match[str]]:
    """One match per requirement, its continuation lines joined."""
    lines = [line.strip() for line in path.read_text().replace("\\\n", " ").splitlines()]
    found = [(line, PIN.match(line)) for line in lines if line and not line.startswith("#")]
    assert all(match for _, match in found), [line for line, match in found if not match]
    return [match for _, match in found if match]


def pins(name: str) -> set[tuple[str, str]]:
    found = requirements(ROOT / f"deploy/requirements{name}.txt")
    return {(match["name"], match["version"]) for match in found}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_requirement_is_one_version_with_a_hash(path: Path) -> None:
    assert requirements(path)
    for match in requirements(path):
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", match[0]), match["name"]
    text = path.read_text()
    assert "://" not in text
    assert not re.search(r"^\s*(-i|-f|--index|--extra-index|--find-links)", text, re.MULTILINE)


def test_the_tests_run_on_the_versions_that_people_run_with_apprise_and_without() -> None:
    usual, extra = pins(""), pins("-apprise")
    assert usual
    assert usual | extra <= pins("-dev")
    names = {name for name, _ in extra}
    assert "apprise" in names
    assert not names & {name for name, _ in usual}


def test_page_shows_each_picture_once_and_says_that_it_is_simulated() -> None:
    pytest.importorskip("playwright")
    page, made_by = (ROOT / "docs/screens.md").read_text(), ROOT / "deploy/build-screenshots"
    script = runpy.run_path(str(made_by))
    made = [f"screens/simulated-{name}.png" for name in script["SCREENS"]]
    shown = re.findall(r"^!\[.+\]\((.+)\)\n\n\*Simulated\.\* ", page, re.MULTILINE)
    assert shown == made == re.findall(r"\]\((screens/.+?)\)", page)
    files = {ROOT / "docs" / name for name in made}
    assert files == set((ROOT / "docs/screens").iterdir())
    assert [file.name for file in files if file.stat().st_size > 150_000] == []
