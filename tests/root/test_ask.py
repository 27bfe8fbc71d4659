from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

from gpud.core.dockerd import Api
from gpud.root.ask import Ask

if TYPE_CHECKING:
    from pathlib import Path


def test_a_listener_whose_backlog_is_full_is_silent_and_not_gone(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(path)
        listener.listen(0)
        stack.enter_context(socket.socket(socket.AF_UNIX)).connect(path)
        assert Ask(path, "/_ping", now_s=0.0).api is Api.SILENT
