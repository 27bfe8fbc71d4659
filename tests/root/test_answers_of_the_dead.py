"""A dockerd that dies while it is asked: what the next one is, it tells nothing of."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

import pytest

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
    text = b'{{"Version": "1", "LiveRestoreEnabled": false}}'
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
    status = supervised.when(running, "a running dockerd, of which all is known: pings from now on")
    first = status["dockerd"]["process"]["pid"]
    (place / "silent").touch()
    until((place / "asked").exists, "a question under way")
    os.kill(first, signal.SIGKILL)
    status = supervised.when(
        lambda r: (
            running(r)
            and (r["dockerd"]["process"] or {}).get("pid") not in {None, first}
            and r["dockerd"]["restarts"]
        ),
        "the next",
    )
    earlier = status["beat_s"]
    status = supervised.when(lambda r: r["beat_s"] > earlier + 1, "more looks")["dockerd"]
    assert status["restarts"] == {"killed": 1}
    assert (place / "starts").read_text().split() == [str(first), str(status["process"]["pid"])]


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
    after = supervised.when(lambda r: r["beat_s"] > before["beat_s"] + 6, "many more looks")
    assert (after["dockerd"]["process"], after["dockerd"]["restarts"]) == (first, {})
