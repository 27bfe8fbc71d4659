"""What holds for every verb: help on one screen, exit codes, errors with a fix, full disks."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpud import arguments, cli
from gpud.agent.history.store import Store
from gpud.core.text import pasteable
from tests import serving, snapshots
from tests.histories import run
from tests.term import homes
from tests.term.windows import ENVIRONMENT, gpud

if TYPE_CHECKING:
    from collections.abc import Iterator


def verbs(parser: argparse.ArgumentParser, before: str = "") -> dict[str, argparse.ArgumentParser]:
    """Every verb and every action of one, by what is typed."""
    found: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, verb in action.choices.items():
                found |= {f"{before}{name}": verb, **verbs(verb, f"{before}{name} ")}
    return found


VERBS = verbs(arguments.parser())
COMMAND = Path(sys.executable).parent / "gpud"


def ran(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        gpud(home, *words),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=ENVIRONMENT,
    )


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home in which gpud runs, has a history, and has logged something."""
    state, log = tmp_path / "var/lib/gpud", tmp_path / "var/log/gpud/root.log"
    for folder in (state, log.parent):
        folder.mkdir(parents=True)
    with closing(Store(state)) as store:
        store.append([run(1e9)])
    log.write_text('{"event": "x", "level": "info", "timestamp": "2026-01-01T00:00:00Z"}\n')
    with serving.agent(tmp_path, snapshots.full(), published=homes.well()):
        yield tmp_path


def test_every_verb_is_done_by_something_and_nothing_else_is() -> None:
    assert set(cli.RUN) == {name for name in VERBS if " " not in name}


@pytest.mark.parametrize("name", VERBS)
def test_the_help_of_every_verb_is_one_screen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = VERBS[name].format_help().splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    monkeypatch.setenv("COLUMNS", "40")
    assert VERBS[name].format_help()


def test_gpud_alone_prints_the_help_with_the_most_used_first(tmp_path: Path) -> None:
    alone = subprocess.run(
        [sys.executable, "-I", "-m", "gpud"],
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
    )
    assert (alone.returncode, alone.stdout) == (2, "")
    shown = alone.stderr
    assert shown.index("  status") < shown.index("  doctor") < shown.index("  up ")
    help_ = ran(tmp_path, "--help")
    assert (help_.returncode, help_.stderr) == (0, "")
    for code, meaning in arguments.EXIT_CODES.items():
        assert f"{code} {meaning}" in " ".join(help_.stdout.split())


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("status",), 0),
        (("status", "--json"), 0),
        (("history",), 0),
        (("history", "export"), 0),
        (("logs",), 0),
        (("alerts",), 0),
        (("baseline", "show"), 0),
        (("config", "show"), 0),
        (("config", "check"), 0),
        (("completion", "fish"), 0),
        (("version",), 0),
        (("probe", "--list"), 0),
        (("probe", "lunch"), 2),
        (("history", "--probe", "lunch"), 2),
        (("logs", "--since", "then"), 2),
        (("baseline", "reset"), 2),
        (("status", "--watch", "0"), 2),
        (("completion", "csh"), 2),
        (("gpus",), 2),
    ],
)
def test_the_exit_code_says_how_it_went(home: Path, words: tuple[str, ...], code: int) -> None:
    done = ran(home, *words)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    if code == 0:
        assert done.stdout
    else:
        assert done.stderr.startswith("gpud: ")


@pytest.mark.parametrize(
    "words",
    [("status",), ("status", "--json"), ("alerts",), ("baseline", "show"), ("history",), ("logs",)],
)
def test_what_needs_a_running_gpud_is_3_without_one(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert ran(tmp_path, *words).returncode == 3


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full")
@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("status", "--json"),
        ("doctor", "--json"),
        ("probe", "cpu_call"),
        ("history",),
        ("logs",),
        ("version",),
        ("--version",),
        ("--help",),
    ],
)
def test_a_full_disk_behind_stdout_is_1_and_one_sentence(
    home: Path, words: tuple[str, ...]
) -> None:
    with FULL.open("w") as full:
        done = subprocess.run(
            gpud(home, *words),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
            env=ENVIRONMENT,
        )
    assert done.returncode == 1
    assert done.stderr.count("cannot write the result: No space left on device") == 1
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize(
    "words", [("status",), ("logs",), ("probe", "cpu_call", "--json"), ("--help",)]
)
def test_a_reader_that_goes_away_is_no_error(home: Path, words: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as gone:
        done = subprocess.run(
            gpud(home, *words),
            stdout=gone,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
            env=ENVIRONMENT,
        )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        (("statsu",), "did you mean status?"),
        (("logs", "--level", "warn"), "did you mean warning?"),
        (("nonsense",), "gpud --help"),
        (("history", "--limit", "x"), "gpud history --help"),
        (("status", "--jsno"), "did you mean --json?"),
        (("status", "--nonsense"), "gpud status --help"),
        (("logs", "-z"), "gpud logs --help"),
        (("probe", "launch", "--repaet=3"), "did you mean --repeat?"),
        (("baseline", "reset", "--prode", "x"), "did you mean --probe?"),
        (("history", "--lmit"), "did you mean --limit?"),
        (("history", "export", "--hourley"), "did you mean --hourly?"),
        (("history", "export", "--chrat"), "gpud history export --help"),
        (("config",), "gpud config --help"),
    ],
)
def test_a_wrong_word_is_told_with_the_right_one(
    tmp_path: Path, words: tuple[str, ...], fix: str
) -> None:
    done = ran(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f"  fix: {fix}\n")


@pytest.mark.parametrize("verb", cli.RUN)
def test_every_verb_in_a_text_is_written_with_the_program_and_its_home(verb: str) -> None:
    words = f"`sudo gpud {verb}`; gpud {verb}s, /opt/gpud {verb}"
    shown = pasteable(words, ["/a b/gpud", "--home", "/h"])
    assert shown == f"`sudo '/a b/gpud' --home /h {verb}`; gpud {verb}s, /opt/gpud {verb}"


def test_the_fixes_of_a_development_run_can_be_pasted(tmp_path: Path) -> None:
    start = f"{COMMAND} --home {tmp_path}"
    assert ran(tmp_path, "status").stdout.endswith(f"start it with: {start} up\n")
    settings = tmp_path / "etc/gpud/gpud.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("nonsense = 1\n")
    checks = json.loads(ran(tmp_path, "doctor", "--json").stdout)["checks"]
    (fix,) = [one["fix"] for one in checks if one["name"] == "settings"]
    assert f"`{start} config check` reads the file again, `sudo {start} restart` uses it" in fix
    told = homes.well()
    told["health"]["dockerd"] |= {"level": 2, "reason": "x", "fix": "then: gpud restart"}
    homes.running(tmp_path, told)
    shown = " ".join(ran(tmp_path, "status").stdout.split())
    assert f"do first: then: {start} restart" in shown


def test_a_wrong_word_does_not_steer_the_terminal(tmp_path: Path) -> None:
    done = ran(tmp_path, "\x1b[2J", "x")
    assert done.returncode == 2
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize(
    "told",
    [
        {"schema_version": 1},
        {**homes.well(), "gpus": 5},
        {**homes.well(), "alerts": [{"starts_s": 1e300}]},
    ],
)
@pytest.mark.parametrize("verb", ["status", "alerts", "baseline show"])
def test_a_status_of_another_version_is_told_and_no_traceback(
    tmp_path: Path, told: dict[str, object], verb: str
) -> None:
    ended = ran(homes.running(tmp_path, told), *verb.split())
    assert "Traceback" not in ended.stderr
    assert ended.returncode in {0, 1}
    if ended.stderr:
        assert f"fix: sudo {COMMAND} --home {tmp_path} restart" in ended.stderr
