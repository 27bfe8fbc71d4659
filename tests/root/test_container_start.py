from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gpud.core.dockerd import Api, Seen
from gpud.core.report import Owner
from gpud.core.settings import Settings
from gpud.root.containers import Containers
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path


def test_the_short_life_asks_the_socket_that_dockerd_really_listens_on(tmp_path: Path) -> None:
    told = tmp_path / "told"
    command = ("/bin/sh", "-c", f'echo "$@" > {told}.new; mv {told}.new {told}; exec sleep 100', "")
    containers = Containers(Settings(home=str(tmp_path)), command)
    try:
        seen = Seen(process=None, owner=Owner.GPUD, api=Api.ANSWERS)
        containers.step(seen, "/srv/theirs.sock", time.monotonic() + 1000)
        until(told.exists, "its command line")
        assert "--socket=/srv/theirs.sock " in told.read_text()
    finally:
        containers.stop()
