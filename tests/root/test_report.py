from __future__ import annotations

from typing import Any

import pytest

from gpud.root.report import LONGEST_VERSION, Facts, learned

FACTS = Facts(version="20.10.24", live_restore=True, containers_running=2)


def test_facts_of_dockerd_are_stored() -> None:
    assert learned(Facts(), {"Version": "29.0"}).version == "29.0"
    assert learned(FACTS, {"LiveRestoreEnabled": False}).live_restore is False
    assert learned(FACTS, {"ContainersRunning": 0}).containers_running == 0


@pytest.mark.parametrize("junk", [None, "", 7, ["x"], {"a": 1}])
def test_an_answer_of_another_kind_changes_nothing(junk: Any) -> None:
    assert learned(FACTS, {"Version": junk, "LiveRestoreEnabled": junk}) == FACTS


@pytest.mark.parametrize("junk", [None, "3", -1, True, 1.5, 10**30])
def test_a_number_of_containers_that_cannot_be_changes_nothing(junk: Any) -> None:
    assert learned(FACTS, {"ContainersRunning": junk}) == FACTS


def test_a_version_is_a_short_word_whoever_answers() -> None:
    assert learned(Facts(), {"Version": "x" * 1_000_000}).version == "x" * LONGEST_VERSION
