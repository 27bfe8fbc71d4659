"""The contract of the command line: exit codes, one document for --json, errors with a fix."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpud.agent.history.store import Store
from gpud.core.errors import GpudError
from gpud.place import document
from tests import serving, snapshots
from tests.e2e.program import program
from tests.histories import run
from tests.terminals import ENVIRONMENT
from tests.verbs import homes
from tests.verbs.homes import COMMAND, called, configured, gpud, started
from tests.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home in which gpud runs, has a history, and has logged something."""
    tmp_path.chmod(0o755)
    state, log = tmp_path / "var/lib/gpud", tmp_path / "var/log/gpud/root.log"
    for folder in (state, log.parent):
        folder.mkdir(parents=True)
    with closing(Store(state)) as store:
        store.append([run(1e9)])
    log.write_text('{"event": "x", "level": "info", "timestamp": "2026-01-01T00:00:00Z"}\n')
    with serving.agent(tmp_path, snapshots.full(), published=homes.well()):
        yield tmp_path


def test_version_is_one_line_or_a_document(tmp_path: Path) -> None:
    for word in ("version", "--version"):
        assert called(tmp_path, word) == homes.Ran(0, "gpud 0.2.0\n", "")
    ran = called(tmp_path, "version", "--json")
    assert (ran.code, json.loads(ran.out)) == (0, {"schema_version": 1, "version": "0.2.0"})


def test_version_and_status_load_nothing_that_they_do_not_need(home: Path) -> None:
    for verb, unwanted in (
        ("version", ("msgspec", "json", "gpud.place", "gpud.document", "dataclasses", "pathlib")),
        ("status", ("rich", "asyncio", "gpud.agent", "gpud.doctor", "shtab", "hashlib", "shutil")),
        ("status", ("logging", "subprocess", "tomllib", "email", "http", "difflib")),
        ("status", ("dataclasses", "inspect", "typing_extensions")),
    ):
        script = f"import sys; from gpud import cli; cli.main(['--home', {str(home)!r}, {verb!r}])"
        line = [sys.executable, "-I", "-c", f"{script}; print(*sys.modules, sep='\\n')"]
        done = subprocess.run(line, capture_output=True, text=True, check=True)
        assert not set(unwanted) & set(done.stdout.splitlines()), verb


LINES = [
    *("status", "status --json", "history", "history export", "logs", "alerts", "baseline show"),
    *("baseline", "config show", "config check", "completion fish", "probe --list"),
]


@pytest.mark.parametrize("line", LINES)
def test_exit_code_is_0_with_output(home: Path, line: str) -> None:
    ran = called(home, *line.split())
    assert ran.code == 0, ran.err
    assert ran.out


HUGE = "9" * 5000


@pytest.mark.parametrize(
    ("line", "message", "fix"),
    [
        ("history --probe lunch", "the history has no probe 'lunch'", "one of cpu_call, "),
        ("history --mode zz", "the history has no mode 'zz'", "one of call, "),
        ("history --gpu 9", "there is no GPU 9", "one of: 0 "),
        (f"history --gpu {HUGE}", "there is no GPU 99", "one of: 0 "),
        (f"baseline show --gpu {HUGE}", "there is no GPU 99", "one of: 0 "),
        (f"baseline accept --gpu {HUGE}", "there is no GPU 99", "one of: 0 "),
        ("--config /none config check", "/none does not exist", "--config FILE"),
        ("--config /none status", "/none does not exist", "--config FILE"),
        ("history --since 1h --until 2h", "--since is later than --until", "exchange the two"),
    ],
)
def test_name_that_there_is_not_is_an_error_with_those_there_are(
    home: Path, line: str, message: str, fix: str
) -> None:
    ran = called(home, *line.split())
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"gpud: {message}")
    assert fix in ran.err.partition("\n  fix: ")[2]
    assert len(ran.err) < 1000


@pytest.mark.parametrize("line", ["status", "alerts", "baseline show", "history", "logs"])
def test_verb_that_needs_a_running_gpud_is_3_without_one(tmp_path: Path, line: str) -> None:
    ran = called(tmp_path, *line.split())
    assert ran.code == 3
    assert f"{COMMAND} --home {tmp_path} up\n" in ran.out + ran.err


@pytest.mark.parametrize(
    "line", ["baseline accept --all", "baseline reset --all", "alerts ack ab", "gpus forget all"]
)
def test_act_without_an_agent_is_3_and_leaves_nothing(tmp_path: Path, line: str) -> None:
    ran = called(tmp_path, *line.split())
    assert (ran.code, ran.out) == (3, "")
    assert ran.err == f"gpud: gpud is not running\n  fix: {COMMAND} --home {tmp_path} up\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("line", ["status", "alerts", "baseline show"])
def test_gpud_that_does_not_run_is_one_document_too(tmp_path: Path, line: str) -> None:
    ran = called(tmp_path, *line.split(), "--json")
    document = {"schema_version": 1, "state": "not_running", "detail": "gpud is not running"}
    document["fix"] = f"{COMMAND} --home {tmp_path} up"
    assert (ran.code, json.loads(ran.out)) == (3, document)


def test_gpud_that_a_person_stopped_is_reported_as_stopped(tmp_path: Path) -> None:
    marker = tmp_path / "elsewhere/stopped"
    assert "stopped with" not in called(tmp_path, "status").out
    marker.parent.mkdir()
    marker.touch()
    configured(tmp_path, "[http\n")  # a broken file does not hide what the environment says
    ran = called(tmp_path, "status", GPUD_PATHS__RUN=str(marker.parent))
    assert "(stopped with gpud down)" in ran.out
    assert "not valid TOML" in ran.err


FULL = Path("/dev/full")
NO_ROOM = "gpud: cannot write the result: No space left on device\n  fix: make room for it\n"


def written(home: Path, line: str, stdout: int) -> tuple[int, str]:
    """Run a verb that writes there; gives its exit code and what it says of it."""
    done = subprocess.run(
        gpud(home, *line.split()),
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=LIMIT_S,
        env=ENVIRONMENT,
    )
    os.close(stdout)
    return done.returncode, done.stderr


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full")
@pytest.mark.parametrize("line", ["status", "doctor --json", "probe cpu_call", "logs", "--help"])
def test_full_disk_behind_stdout_is_1_and_one_sentence(home: Path, line: str) -> None:
    code, stderr = written(home, line, os.open(FULL, os.O_WRONLY))
    assert (code, stderr.endswith(NO_ROOM)) == (1, True), stderr
    assert "Traceback" not in stderr
    assert "Exception ignored" not in stderr


@pytest.mark.parametrize("line", ["status", "probe cpu_call --json", "--help"])
def test_reader_that_goes_away_is_no_error(home: Path, line: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    assert written(home, line, writer) == (0, "")


def test_start_that_another_verb_stops_is_reported(tmp_path: Path) -> None:
    log = tmp_path / "var/log/gpud/root.log"
    log.parent.mkdir(parents=True)
    os.mkfifo(log)  # the start waits here for a reader, which never comes
    pipe = subprocess.PIPE
    with subprocess.Popen(gpud(tmp_path, "up"), stderr=pipe, stdout=pipe, text=True) as up:
        until((tmp_path / "run/gpud/root.pid").exists, "the supervisor's pid")
        assert started(tmp_path, "down").code == 0
        _, stderr = up.communicate(timeout=LIMIT_S)
    assert up.returncode == 1
    assert "gpud: it was stopped while it started, by another gpud down or gpud restart" in stderr
    assert f"/gpud --home {tmp_path} status says whether it runs" in stderr


def test_fixes_of_a_development_run_can_be_pasted(tmp_path: Path) -> None:
    start = f"{COMMAND} --home {tmp_path}"
    assert called(tmp_path, "status").out.endswith(f"start it with: {start} up\n")
    configured(tmp_path, "nonsense = 1\n")
    checks = json.loads(started(tmp_path, "doctor", "--json").out)["checks"]
    (fix,) = [check["fix"] for check in checks if check["name"] == "settings"]
    assert f"`{start} config check` reads the file again, `sudo {start} restart` uses it" in fix
    published = homes.well()
    published["health"]["dockerd"] |= {"level": 2, "reason": "x", "fix": "then: gpud restart"}
    homes.running(tmp_path, published)
    shown = " ".join(called(tmp_path, "status").out.split())
    assert f"do first: then: {start} restart" in shown


@pytest.mark.parametrize(
    "published",
    [
        {"schema_version": 1},
        {**homes.well(), "gpus": 5},
        {**homes.well(), "alerts": [{"starts_s": 1e300}]},
        {**homes.well(), "probes": [{"probe": "new", "samples": [{"mode": "a", "unit": "hertz"}]}]},
    ],
)
@pytest.mark.parametrize("line", ["status", "status --json", "alerts", "baseline show"])
def test_status_of_another_version_is_shown_or_an_error_with_a_fix(
    tmp_path: Path, published: dict[str, object], line: str
) -> None:
    ran = called(homes.running(tmp_path, published), *line.split())
    assert ran.code in {0, 1}
    if line == "status --json":
        assert json.loads(ran.out)["schema_version"] == 1  # whatever it is, a program gets it
    if ran.err:
        assert f"{COMMAND} --home {tmp_path} restart\n" in ran.err


@pytest.mark.timeout(20)
@pytest.mark.parametrize("text", ["[" * 99_999, "5", "[1]", '{"a": 1}', "{", "\xff", None])
def test_file_that_is_none_of_the_agents_documents_is_named(
    tmp_path: Path, text: str | None
) -> None:
    run_dir = homes.running(tmp_path, {}) / "run/gpud"
    assert document(run_dir) is None
    path = run_dir / "agent.json"
    path.unlink()
    if text is None:
        os.mkfifo(path)  # nobody waits for a writer
    else:
        path.write_text(text, encoding="latin-1")
    with pytest.raises(GpudError, match=r"agent\.json"):
        document(run_dir)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes nobody")
def test_refused_command_is_repeated_whole_with_sudo() -> None:
    with program() as made:
        (made.run_dir / "agent").mkdir(parents=True)
        os.chown(made.run_dir / "agent", 1, 1)
        ran = started(made.home, "alerts", "test", "a b", nobody=True)
    assert ran.code == 4
    typed = shlex.join([str(COMMAND), "--home", str(made.home), "alerts", "test", "a b"])
    assert ran.err.endswith(f"  fix: sudo {typed}\n")
