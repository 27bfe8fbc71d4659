"""``gpud up`` returns when the next command finds the agent."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

from gpud import client
from gpud.verbs import service
from tests.waiting import LIMIT_S

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_start_waits_until_the_agent_has_published_and_listens_and_follows_no_link_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "ANSWERS_S", 2 * LIMIT_S)
    run_dir = tmp_path / "run/gpud"
    looked = threading.Event()
    listens = client.listens

    def look(folder: Path) -> bool:
        answer = listens(folder)
        looked.set()
        return answer

    monkeypatch.setattr(client, "listens", look)
    waiting = threading.Thread(target=service._await_agent, args=(run_dir,))
    waiting.start()
    assert looked.wait(LIMIT_S)
    assert waiting.is_alive()
    (run_dir / "agent").mkdir(parents=True)
    (run_dir / "agent/agent.json").symlink_to("agent.json")  # by the agent: root follows none
    (run_dir / "api").mkdir()
    monkeypatch.chdir(run_dir / "api")
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind("api.sock")
        agent.listen()
        waiting.join(LIMIT_S)
        assert not waiting.is_alive()
