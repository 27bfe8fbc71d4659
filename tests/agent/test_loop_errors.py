"""Errors of the event loop in the log of the agent."""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import TYPE_CHECKING

from structlog.testing import capture_logs

from gpud.agent.compose import LoopErrors

if TYPE_CHECKING:
    import pytest


def test_want_of_descriptors_is_one_line_and_another_error_has_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(LoopErrors())
        for error in (*[OSError(errno.EMFILE, "Too many open files")] * 3, ValueError("a bug")):
            loop.call_exception_handler({"message": "accept", "exception": error})

    with capture_logs() as logged, caplog.at_level(logging.ERROR):
        asyncio.run(story())
    assert [line["event"] for line in logged] == ["connection_not_taken"]
    assert ["a bug" in record.exc_text for record in caplog.records if record.exc_text] == [True]
