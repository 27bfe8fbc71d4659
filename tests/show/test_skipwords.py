"""Words for skipped runs: every reason has some."""

from __future__ import annotations

from gpud.core.sample import Skip
from gpud.show.skipwords import BECAUSE, because


def test_every_reason_to_skip_a_run_has_words_for_people() -> None:
    assert set(BECAUSE) == set(Skip)
    assert because("boot_grace") == "WSL has just started"
