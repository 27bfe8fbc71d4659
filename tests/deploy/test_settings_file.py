"""The settings file that is installed, with every key, and the reference made from it."""

from __future__ import annotations

import json
import os
import pwd
import tomllib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

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
