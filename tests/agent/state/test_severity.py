from __future__ import annotations

from gpud.agent.state.health import SEVERITY, FailureSeverity
from gpud.core.sample import Reason


def test_a_wrong_or_lost_gpu_is_critical_and_a_busy_one_is_not() -> None:
    critical = {Reason.ECC_ERROR, Reason.DEVICE_LOST, Reason.LAUNCH_TIMEOUT, Reason.HUNG}
    assert {SEVERITY[reason] for reason in critical} == {FailureSeverity.CRITICAL}
    passing = {Reason.OUT_OF_MEMORY, Reason.DEVICE_BUSY, Reason.NOT_READY}
    assert {SEVERITY[reason] for reason in passing} == {FailureSeverity.WARNING}
