"""The agent's socket as programs of several users meet it, and the client that asks there."""

from __future__ import annotations

import asyncio
import contextlib
import grp
import json
import os
import pwd
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gpud import client
from gpud.agent.history.store import History
from gpud.agent.measure.gpu_contexts import GpuContexts
from gpud.agent.serve.local import socket as server
from gpud.agent.serve.local.actions import Actions
from gpud.agent.serve.local.socket import MOST, MOST_PER_UID
from gpud.core.errors import ConfigError, GpudError, NotRunningError, StoreError
from gpud.requests import (
    AckRequest,
    AlertLine,
    AnswerLine,
    ApiRequest,
    ContextsRequest,
    ForgetRequest,
    GpuLine,
    TopRequest,
    encoded,
)
from tests.e2e.program import as_nobody
from tests.serving import listening
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator


ACK = AckRequest(alert="ab")
SECOND, THIRD = "daemon", "bin"
"""Users that every Debian has."""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becoming somebody else needs root")
ASK = """
import socket, sys
with socket.socket(socket.AF_UNIX) as s:
    s.connect(sys.argv[1])
    s.sendall(b'{"request":"ack","alert":"ab"}\\n')
    print(s.makefile().read(), end="")
"""


@dataclass
class Echo:
    """Answers with the user who asks; a few alerts mean something else."""

    uids: list[int] = field(default_factory=list)
    closed: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)
    endless: bool = False  # lines as long as somebody takes them

    async def answer(
        self, request: ApiRequest, uid: int
    ) -> AsyncGenerator[AnswerLine | bytes, None]:
        self.uids.append(uid)
        try:
            while self.endless:
                yield GpuLine(uuid="GPU-0", name="n" * 500)
        finally:
            if self.endless:
                self.closed.set()
        if isinstance(request, ForgetRequest):
            for number in range(50_000):
                yield GpuLine(uuid=f"GPU-{number}", name="n" * 50)
            return
        if isinstance(request, TopRequest):
            await asyncio.Event().wait()
        assert isinstance(request, AckRequest)
        match request.alert:
            case "wrong":
                raise ConfigError("no such alert", fix="name another")
            case "bug":
                raise ZeroDivisionError
            case "never":
                self.begun.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    self.closed.set()
        yield AlertLine(fingerprint=f"{request.alert} of {uid}")


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def run_dir(tmp_path: Path, echo: Echo) -> Iterator[Path]:
    with listening(tmp_path / "api", echo):
        yield tmp_path


def ask_agent(run_dir: Path, request: ApiRequest = ACK) -> list[AnswerLine]:
    return list(client.ask(run_dir, request))


@contextlib.contextmanager
def connected(run_dir: Path, sent: bytes = b"") -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as made:
        made.settimeout(30)
        made.connect(str(run_dir / "api/api.sock"))
        made.sendall(sent)
        yield made


def lines(made: socket.socket) -> list[dict[str, object]]:
    return [json.loads(text) for text in made.makefile() if text != "\n"]


def test_a_request_is_answered_with_the_uid_of_who_asks_also_at_a_long_path(
    run_dir: Path, echo: Echo
) -> None:
    assert (run_dir / "api/api.sock").stat().st_mode & 0o777 == 0o600  # of a development run
    assert ask_agent(run_dir) == [AlertLine(fingerprint=f"ab of {os.geteuid()}")]
    with connected(run_dir, encoded(ACK)) as made:
        assert lines(made) == [
            {"line": "alert", "fingerprint": f"ab of {os.geteuid()}"},
            {"line": "end"},
        ]
    deep = run_dir / ("d" * 100) / ("e" * 100)
    with listening(deep / "api", echo):
        assert ask_agent(deep)


def test_a_long_answer_arrives_whole(run_dir: Path) -> None:
    answer = ask_agent(run_dir, ForgetRequest(gpus=("all",)))
    assert len(answer) == 50_000
    assert answer[-1] == GpuLine(uuid="GPU-49999", name="n" * 50)


def test_what_went_wrong_is_an_error_of_its_kind_with_its_fix(run_dir: Path) -> None:
    with pytest.raises(ConfigError, match="no such alert") as wrong:
        ask_agent(run_dir, AckRequest(alert="wrong"))
    assert wrong.value.fix == "name another"
    with pytest.raises(GpudError, match=r"a bug in gpud.*ZeroDivisionError"):
        ask_agent(run_dir, AckRequest(alert="bug"))
    assert ask_agent(run_dir)


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\n",
        b"[]\n",
        b'{"request":"reboot"}\n',
        b'{"request":"ack"}\n',
        b'{"request":"ack","alert":1}\n',
        b'{"request":"ack","alert":"ab","sudo":true}\n',
        b'{"request":"probe","repeat":101}\n',
        b"\xff\xfe\n",
        b"[" * 5000 + b"\n",
        b'{"request":"ack","alert":"' + b"a" * (1 << 17) + b'"}\n',
    ],
)
def test_what_is_no_request_is_refused_and_does_nothing(
    run_dir: Path, echo: Echo, sent: bytes
) -> None:
    with connected(run_dir) as made:
        with contextlib.suppress(ConnectionError):
            made.sendall(sent)
        answer = made.recv(65536)
    assert json.loads(answer)["kind"] == "usage"
    assert echo.uids == []
    assert ask_agent(run_dir)


def test_who_sends_nothing_is_cut_off(
    tmp_path: Path, echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 0.05)
    with listening(tmp_path / "api", echo), connected(tmp_path, b'{"request"') as made:
        assert lines(made)[0]["message"] == "no request came within 0.05 s"


def test_who_goes_away_stops_what_was_asked_for(run_dir: Path, echo: Echo) -> None:
    with connected(run_dir, encoded(AckRequest(alert="never"))):
        assert echo.begun.wait(30)
    assert echo.closed.wait(30)


@pytest.mark.parametrize(
    ("request_", "limit"),
    [(TopRequest(), "WATCHING_S"), (AckRequest(alert="endless"), "READING_S")],
)
def test_who_stops_reading_is_cut_off(
    tmp_path: Path, echo: Echo, monkeypatch: pytest.MonkeyPatch, request_: ApiRequest, limit: str
) -> None:
    monkeypatch.setattr(server, limit, 0.2)
    echo.endless = True
    with listening(tmp_path / "api", echo), connected(tmp_path, encoded(request_)):
        assert echo.closed.wait(30)


def test_a_long_work_is_no_silence(
    tmp_path: Path, echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "ALIVE_S", 0.01)
    with (
        listening(tmp_path / "api", echo),
        connected(tmp_path, encoded(AckRequest(alert="never"))) as made,
    ):
        assert made.recv(2) == b"\n"


def test_one_user_has_four_connections_and_all_have_32(
    run_dir: Path, echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(1, MOST_PER_UID + 1):
            stack.enter_context(connected(run_dir, encoded(AckRequest(alert="never"))))
            until(lambda number=number: len(echo.uids) == number, "it is being served")  # type: ignore[misc]
        with pytest.raises(GpudError, match=f"serves {MOST} connections at a time, 4 of one user"):
            ask_agent(run_dir)
    until(lambda: _served(run_dir), "room again")
    monkeypatch.setattr(server, "MOST", 0)
    with pytest.raises(GpudError, match="connections at a time"):
        ask_agent(run_dir)


def _served(run_dir: Path) -> bool:
    try:
        return bool(ask_agent(run_dir))
    except GpudError:
        return False


def test_the_socket_takes_the_place_of_one_that_was_left(tmp_path: Path, echo: Echo) -> None:
    folder = tmp_path / "api"
    folder.mkdir()
    for name in ("api.sock", ".api.sock.new"):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(folder / name))
    with pytest.raises(NotRunningError):
        ask_agent(tmp_path)
    with listening(folder, echo):
        until(lambda: _served(tmp_path), "an answer")
        assert [path.name for path in folder.iterdir()] == ["api.sock"]
    with pytest.raises(NotRunningError):
        ask_agent(tmp_path)


def ask_as(user: str, run_dir: Path) -> dict[str, object]:
    """Ask as another user, without any group but the primary one."""
    entry = pwd.getpwnam(user)
    ran = subprocess.run(
        ["/usr/bin/python3", "-I", "-c", ASK, run_dir / "api/api.sock"],
        user=entry.pw_uid,
        group=entry.pw_gid,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        check=True,
    )
    answer: dict[str, object] = json.loads(ran.stdout.splitlines()[0])
    return answer


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """A folder that every user can reach."""
    with tempfile.TemporaryDirectory(prefix="gpud-socket-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@needs_root
def test_a_group_admits_its_members_and_nobody_else(open_dir: Path, echo: Echo) -> None:
    primary = grp.getgrgid(pwd.getpwnam(SECOND).pw_gid).gr_name
    with listening(open_dir / "api", echo, primary):
        assert (open_dir / "api/api.sock").stat().st_mode & 0o777 == 0o666
        assert ask_as(SECOND, open_dir)["line"] == "alert"
        denied = ask_as(THIRD, open_dir)
    assert (denied["line"], denied["kind"]) == ("error", "denied")
    assert denied["message"] == f"you are not in the group {primary}"
    assert str(denied["fix"]).startswith(f"sudo usermod -aG {primary} {THIRD} (works at once")
    assert echo.uids == [pwd.getpwnam(SECOND).pw_uid]
    with listening(open_dir / "of-none", echo, "no-such-group"):
        (open_dir / "of-none").rename(open_dir / "api")
        assert ask_as(SECOND, open_dir)["kind"] == "denied"
        assert ask_agent(open_dir)


@needs_root
def test_a_server_of_another_user_is_not_asked(open_dir: Path) -> None:
    folder = open_dir / "api"
    folder.mkdir()
    os.chown(open_dir, pwd.getpwnam(SECOND).pw_uid, -1)
    os.chown(folder, pwd.getpwnam(SECOND).pw_uid, -1)
    squat = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]);"
    squat += " s.listen(); print(flush=True); c, _ = s.accept(); print(c.recv(99), flush=True)"
    with subprocess.Popen(
        ["/usr/bin/python3", "-I", "-c", squat, folder / "api.sock"],
        user=pwd.getpwnam(SECOND).pw_uid,
        stdout=subprocess.PIPE,
        cwd="/",
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(GpudError, match="who is not gpud's"):
            ask_agent(open_dir)
        assert process.stdout.readline() == b"b''\n"  # and it got no request


def test_link_in_the_sockets_place_is_not_followed(tmp_path: Path, echo: Echo) -> None:
    with listening(tmp_path / "other", echo):
        (tmp_path / "api").mkdir()
        (tmp_path / "api/api.sock").symlink_to(tmp_path / "other/api.sock")
        with pytest.raises(NotRunningError):
            ask_agent(tmp_path)
    assert echo.uids == []


def test_an_agent_that_is_silent_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "SILENT_S", 0.05)
    (tmp_path / "api").mkdir()
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "api/api.sock"))
        deaf.listen()
        words = rf"agent \(process {os.getpid()}\) has been silent for 0.05 s"
        with pytest.raises(GpudError, match=words) as silent:
            ask_agent(tmp_path)
    assert silent.value.fix == "gpud restart"


def test_an_answer_that_is_cut_off_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "api").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "api/api.sock"))
        listener.listen()

        def half() -> None:
            taken, _ = listener.accept()
            with taken:
                taken.recv(1000)
                taken.sendall(encoded(AlertLine(fingerprint="ab")))

        thread = threading.Thread(target=half)
        thread.start()
        with pytest.raises(GpudError, match="ended before it had answered"):
            ask_agent(tmp_path)
        thread.join()


@needs_root
def test_a_development_run_of_another_user_is_4_and_names_the_fix(
    open_dir: Path, echo: Echo
) -> None:
    line = [sys.executable, "-I", "-m", "gpud", "--home", str(open_dir), "alerts", "ack", "ab"]
    with listening(open_dir / "run/gpud/api", echo):
        ran = subprocess.run(
            [*as_nobody(open_dir), *line], capture_output=True, text=True, check=False
        )
    assert (ran.returncode, ran.stdout) == (4, "")
    assert "is of a development run of another user\n" in ran.stderr
    program = Path(sys.executable).parent / "gpud"
    assert ran.stderr.endswith(f"  fix: sudo {program} --home {open_dir} alerts ack ab\n")
    assert echo.uids == []


async def test_contexts_of_another_program_are_counted_though_the_history_is_not_written(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    state.write_text("no directory\n")
    contexts = GpuContexts(tmp_path, "boot", 250)
    others = ("settings", "read", "regression", "changes", "pipeline", "watching")
    parts: dict[str, Any] = dict.fromkeys(others)
    parts |= {"history": History(state), "launcher": SimpleNamespace(contexts=contexts)}
    with pytest.raises(StoreError):
        await anext(Actions(**parts).answer(ContextsRequest(count=7), 1000))
    assert contexts.used == 7


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_server_that_is_cancelled_while_it_starts_leaves_no_socket_open(
    tmp_path: Path,
) -> None:
    nobody_asks: Any = None
    before = descriptors()
    task = asyncio.create_task(server.SocketServer(tmp_path, nobody_asks, None).run())
    await asyncio.sleep(0)
    assert descriptors() == before + 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert descriptors() == before
