"""``gpud alerts test``: one alert through real sinks, without an agent."""

from __future__ import annotations

import json
import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpud.agent.alerts.sink import run_test
from tests.agent.alerts.telling import context, receiver, says

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.core.settings import Settings


@pytest.fixture(autouse=True)
def log_closed() -> Iterator[None]:
    """Close the log that a command leaves open for the end of its process to close."""
    yield
    root = logging.getLogger()
    for handler in [h for h in root.handlers if isinstance(h, RotatingFileHandler)]:
        root.removeHandler(handler)
        handler.close()


def settings(folder: Path, text: str) -> Settings:
    return context(folder, text).settings


def test_every_sink_gets_a_test_and_each_says_how_it_went(tmp_path: Path) -> None:
    with receiver() as well, receiver(says("401 No")) as dead:
        urls = json.dumps([well.url("/T0KEN"), dead.url("/T0KEN")])
        lines, code = run_test(settings(tmp_path, f"webhook_urls = {urls}\n"))
        [document] = well.documents
    assert code == 1
    assert document["alerts"][0]["labels"]["alertname"] == "GpudTest"
    text = "\n".join(lines)
    assert f"webhook: delivered to 127.0.0.1:{well.port}" in lines
    assert f"webhook_2: not delivered: 127.0.0.1:{dead.port} answers 401" in text
    assert "  fix: let [alerts] webhook_credentials_file name a file" in text
    assert "T0KEN" not in text
    assert "notice: " in text
    assert (tmp_path / "run/gpud/notice").read_text().startswith("a test of gpud's alerts")


def test_log_gets_a_line_and_the_terminal_none(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made = settings(tmp_path, "")
    path = Path(made.log_dir, "agent/agent.log")
    assert run_test(made, "log") == ([f"log: delivered to {path}"], 0)
    line = json.loads(path.read_text())
    assert (line["event"], line["alertname"]) == ("alert_firing", "GpudTest")
    assert capfd.readouterr() == ("", "")
    path.unlink()
    path.parent.rmdir()
    lines, code = run_test(made, "log")
    assert (code, "not delivered" in lines[0], lines[1][:7]) == (1, True, "  fix: ")


def test_sink_can_be_chosen_by_its_name_or_all_of_a_kind(tmp_path: Path) -> None:
    with receiver() as first, receiver() as second:
        made = settings(tmp_path, f"webhook_urls = {json.dumps([first.url(), second.url()])}\n")
        delivered = [f"webhook_2: delivered to 127.0.0.1:{second.port}"]
        assert run_test(made, "webhook_2") == (delivered, 0)
        assert run_test(made, "webhook")[1] == 0
        assert (len(first.requests), len(second.requests)) == (1, 2)
    assert not (tmp_path / "run/gpud/notice").exists()


@pytest.mark.parametrize("name", ["webhook", "nonsense", "\x1b[31m"])
def test_sink_that_is_not_configured_is_a_usage_error_that_lists_the_sinks(
    name: str, tmp_path: Path
) -> None:
    lines, code = run_test(settings(tmp_path, ""), name)
    assert code == 2
    assert "only log, notice" in lines[0]
    assert "gpud.toml" in lines[1]
    assert "\x1b" not in "".join(lines)


def test_output_of_a_program_is_shown_to_the_person_who_tries_it(tmp_path: Path) -> None:
    script = tmp_path / "hook"
    script.write_text("#!/bin/sh\nprintf 'no \\033[31mroute\\n\\nsorry\\n' >&2\nexit 7\n")
    script.chmod(0o755)
    lines, code = run_test(settings(tmp_path, f'command = ["{script}"]'), "command")
    assert code == 1
    assert lines[0] == f"command: not delivered: {script} ended with 7"
    assert lines[1:] == ["  it said: no \\x1b[31mroute", "  it said: sorry"]  # no fix: it is this
