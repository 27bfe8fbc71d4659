"""What the questions that HTTP asks of the history have in common."""

from __future__ import annotations

import asyncio
import math
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.responses import JSONResponse

from gpud.core.errors import StoreError
from gpud.core.sample import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.datastructures import QueryParams

    from gpud.agent.store import History, Store

T = TypeVar("T")

PATIENCE_S: Final = 4.0
"""A disk that does not answer is not waited for: whoever asks has a deadline of his own."""


class Unusable(Exception):  # noqa: N818  # reads as the fact it states
    """A parameter cannot be used; ``fix`` says what can."""

    def __init__(self, parameter: str, detail: str, fix: str) -> None:
        super().__init__(detail)
        self.parameter = parameter
        self.fix = fix


def refuse_unknown(query: QueryParams, known: Sequence[str], *, lists: Sequence[str] = ()) -> None:
    """Refuse what is not known, and what is given twice and is no list. Errors: ``Unusable``."""
    for name in query:
        if name not in known:
            raise Unusable(name, f"there is no parameter {name!a:.40}", one_of(known))
        if name not in lists and len(query.getlist(name)) > 1:
            raise Unusable(name, f"{name} is given more than once", f"give {name} once")


def moment(name: str, text: str | None) -> float | None:
    """Read Unix seconds or RFC 3339; None for what is not given. Errors: ``Unusable``."""
    if text is None:
        return None
    fix = f"{name}=1700000000, or {name}=2023-11-14T22:13:20Z (a + is written %2B)"
    try:
        found = float(text)
    except ValueError:
        try:
            told = datetime.fromisoformat(text)
        except ValueError:
            raise Unusable(name, f"{name} is no moment: {text!a:.40}", fix) from None
        if told.tzinfo is None:
            detail = f"{name} lacks its offset from UTC: {text!a:.40}"
            raise Unusable(name, detail, fix) from None
        found = told.timestamp()
    if not math.isfinite(found):
        raise Unusable(name, f"{name} is no moment: {text!a:.40}", fix)
    return found


def count(name: str, text: str | None, *, usual: int, most: int) -> int:
    """Read 1 to ``most``; ``usual`` for what is not given. Errors: ``Unusable``."""
    if text is None:
        return usual
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most))):
        raise Unusable(name, f"{name} is no count: {text!a:.40}", f"1 to {most}")
    if not 1 <= int(text) <= most:
        raise Unusable(name, f"{name} is {text}", f"1 to {most}")
    return int(text)


def one_of(names: Sequence[str]) -> str:
    """Write what could have been said."""
    return f"use one of {', '.join(names)}"


async def asked(history: History, question: Callable[[Store], T]) -> T:
    """Put a question to the history, within ``PATIENCE_S``. Errors: ``StoreError``."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await history.ask(question)
    except TimeoutError:
        slow = f"the history did not answer within {PATIENCE_S:g} s"
        raise StoreError(slow, reason="slow", fix="look at the disk") from None


def answer(document: dict[str, Any], status_code: int = 200) -> JSONResponse:
    """Give a document with its version."""
    return JSONResponse({"schema_version": SCHEMA_VERSION, **document}, status_code=status_code)


def refusal(error: Unusable) -> JSONResponse:
    """Say which parameter it was, and what would have been understood."""
    said = {"parameter": error.parameter, "detail": str(error), "fix": error.fix}
    return answer({"error": said}, status_code=400)


def unavailable(error: StoreError) -> JSONResponse:
    """Say why the history gives nothing just now."""
    said = {"reason": error.reason, "detail": str(error), "fix": error.fix or ""}
    return answer({"error": said}, status_code=503)
