"""A dockerd that dies while it is asked: what the next one is, it tells nothing of."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.root.conftest import RUN
from tests.root.test_dockerd_real import running
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.root.conftest import Supervised

DOCKERD = """\
#!/usr/bin/python3 -I
import contextlib, os, select, socket, threading, time
from pathlib import Path
place = Path({place!r})
def answer(asking):
    status = b"500 Error" if (place / "error").exists() else b"200 OK"
    text = b'{{"ServerVersion": "1", "LiveRestoreEnabled": false}}'
    with asking, contextlib.suppress(OSError):
        asking.recv(1024)
        if (place / "late").exists():
            time.sleep(0.7)
        asking.sendall(b"HTTP/1.0 " + status + b"\\r\\n\\r\\n" + text)
with (place / "starts").open("a") as starts:
    starts.write(f"{{os.getpid()}}\\n")
(place / "docker.pid").write_text(str(os.getpid()))
path = place / "docker.sock"
path.unlink(missing_ok=True)
listening = socket.socket(socket.AF_UNIX)
listening.bind(str(path))
listening.listen()
while True:
    select.select([listening], [], [])
    if (place / "silent").exists():
        if os.fork() == 0:  # as a thread of it that the kernel has not ended yet
            while (place / "starts").read_text().count("\\n") == 1:
                time.sleep(0.01)
            os._exit(0)
        (place / "silent").rename(place / "asked")
        time.sleep(1000)
    threading.Thread(target=answer, args=listening.accept()[:1]).start()
"""


KILLED_WHEN_FOUND = f"""
import os
from pathlib import Path
from gpud.root.dockerd import Dockerd
find = Dockerd.find
def killed_when_found(self, listener):
    found = find(self, listener)
    order = Path(os.path.dirname(self.config.pidfile), "kill")
    if listener and found and order.exists():
        order.unlink()
        os.kill(found.pid, 9)
        os.waitid(os.P_PID, found.pid, os.WEXITED | os.WNOWAIT)
    return found
Dockerd.find = killed_when_found
{RUN}"""
"""A supervisor whose dockerd dies right after it was looked up, once, when ``kill`` is there."""
SLOW_EVERY_OTHER_TIME = f"""
import itertools, time
from gpud.root.dockerd import Dockerd
find, slow = Dockerd.find, itertools.cycle((0, 1))
def slowly(self, listener):
    time.sleep(next(slow))
    return find(self, listener)
Dockerd.find = slowly
{RUN}"""
"""A supervisor that needs a second more to look at /proc, every other time, as under load."""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts a dockerd")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Made before gpud, so that it goes after it: the last of them outlives gpud, as it should."""
    yield tmp_path
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int((tmp_path / "starts").read_text().split()[-1]), signal.SIGKILL)


def settings(place: Path) -> dict[str, dict[str, object]]:
    binary = place / "dockerd"
    binary.write_text(DOCKERD.format(place=str(place)))
    binary.chmod(0o755)
    return {
        "dockerd": {
            "policy": "manage",
            "binary": str(binary),
            "socket": str(place / "docker.sock"),
            "pidfile": str(place / "docker.pid"),
            "ping_interval_s": 0.1,
        }
    }


@needs_root
def test_ping_lost_with_a_dead_dockerd_is_no_failure_of_the_next(
    place: Path, supervised: Supervised
) -> None:
    """The one who listened when it was put names nobody any more when it ends."""
    supervised.settings = settings(place)
    supervised.start()
    said = supervised.when(running, "a running dockerd, of which all is known: pings from now on")
    first = said["dockerd"]["process"]["pid"]
    (place / "silent").touch()
    until((place / "asked").exists, "a question under way")
    os.kill(first, signal.SIGKILL)
    said = supervised.when(
        lambda r: (
            running(r)
            and (r["dockerd"]["process"] or {}).get("pid") not in {None, first}
            and r["dockerd"]["restarts"]
        ),
        "the next",
    )
    heard = said["beat_s"]
    said = supervised.when(lambda r: r["beat_s"] > heard + 1, "more looks")["dockerd"]
    assert said["restarts"] == {"killed": 1}
    assert (place / "starts").read_text().split() == [str(first), str(said["process"]["pid"])]


@needs_root
def test_dockerd_that_dies_between_two_looks_is_counted_as_killed(
    place: Path, supervised: Supervised
) -> None:
    supervised.settings = settings(place)
    supervised.program = KILLED_WHEN_FOUND
    supervised.start()
    first = supervised.when(running, "a running dockerd")["dockerd"]["process"]
    (place / "kill").touch()
    after = supervised.when(
        lambda r: running(r) and r["dockerd"]["process"] != first, "the next dockerd"
    )
    assert after["dockerd"]["restarts"] == {"killed": 1}


@needs_root
@pytest.mark.parametrize("how", ["late", "error"])
def test_dockerd_that_answers_late_or_with_an_error_is_not_hung(
    how: str, place: Path, supervised: Supervised
) -> None:
    supervised.settings = settings(place)
    supervised.settings["dockerd"] |= {"ping_timeout_s": 0.3, "hung_after_s": 1.5}
    supervised.start()
    first = supervised.when(running, "a running dockerd")["dockerd"]["process"]
    (place / how).touch()
    before = supervised.when(lambda r: r["dockerd"]["state"] == "unresponsive", "no good answer")
    after = supervised.when(lambda r: r["beat_s"] > before["beat_s"] + 4, "many more looks")
    assert (after["dockerd"]["process"], after["dockerd"]["restarts"]) == (first, {})


@needs_root
def test_slow_look_at_a_silent_dockerd_is_no_pause_of_the_machine(
    place: Path, supervised: Supervised
) -> None:
    supervised.settings = settings(place)
    supervised.settings["dockerd"] |= {
        "ping_interval_s": 0.5,
        "ping_timeout_s": 0.5,
        "hung_after_s": 3.0,
    }
    supervised.program = SLOW_EVERY_OTHER_TIME
    supervised.start()
    first = supervised.when(running, "a running dockerd")["dockerd"]["process"]
    os.kill(first["pid"], signal.SIGSTOP)
    ended = supervised.when(
        lambda r: running(r) and r["dockerd"]["process"] != first, "the next dockerd"
    )
    assert ended["dockerd"]["restarts"] == {"hung": 1}
