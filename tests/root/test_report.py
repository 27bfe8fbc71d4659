from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gpud.root.report import Facts, learned

FACTS = Facts(version="20.10.24", live_restore_enabled=True, containers_running=2)


def test_facts_of_dockerd_are_stored() -> None:
    assert learned(Facts(), b'{"Version": "29.0", "Os": 7}').version == "29.0"
    assert learned(FACTS, b'{"LiveRestoreEnabled": false}').live_restore_enabled is False
    assert learned(FACTS, b'{"ContainersRunning": 0}').containers_running == 0


@pytest.mark.parametrize("name", ["Version", "LiveRestoreEnabled", "ContainersRunning"])
@pytest.mark.parametrize("junk", [None, "", 7.5, ["x"], {"a": 1}, -1, 10**30, "x" * 1_000_000])
def test_an_answer_of_another_kind_changes_nothing(name: str, junk: object) -> None:
    assert learned(FACTS, json.dumps({name: junk}).encode()) == FACTS


def test_field_of_another_kind_costs_no_other_field() -> None:
    answer = b'{"Version": 7, "LiveRestoreEnabled": false, "ContainersRunning": "x"}'
    assert learned(FACTS, answer) == replace(FACTS, live_restore_enabled=False)


@pytest.mark.parametrize("junk", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_an_answer_that_is_no_document_changes_nothing(junk: bytes) -> None:
    assert learned(FACTS, junk) == FACTS
