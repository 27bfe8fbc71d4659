"""Reasons for which the listener refuses a request or connection, and how each is answered."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class Refused(Enum):
    """The reason's name in metrics and, where there is an answer, in the API."""

    BAD_REQUEST = "bad_request"
    UNAUTHORIZED = "unauthorized"
    FOREIGN_PAGE = "foreign_page"
    BODY_TOO_LARGE = "body_too_large"
    TARGET_TOO_LONG = "target_too_long"
    FOREIGN_HOST = "foreign_host"
    TOO_MANY_PASSWORDS = "too_many_passwords"
    HEADERS_TOO_LARGE = "headers_too_large"
    TOO_MANY_CONNECTIONS = "too_many_connections"
    TOO_SLOW = "too_slow"
    TLS_FAILED = "tls_failed"


@dataclass(frozen=True, slots=True)
class RefusalAnswer:
    """How a refusal is answered. ``headers``: beside those that every answer has."""

    status: int
    detail: str
    fix: str
    headers: tuple[tuple[str, str], ...] = ()
    closes: bool = False  # what follows on the connection may be the rest of it


ANSWERS: Final[Mapping[Refused, RefusalAnswer]] = {
    Refused.BAD_REQUEST: RefusalAnswer(
        400,
        "what was sent is no request, or one with a body",
        "send GET or HEAD with a path and one Host",
        closes=True,
    ),
    Refused.UNAUTHORIZED: RefusalAnswer(
        401,
        "gpud wants to know who asks",
        "give name and password of a user of [http] basic_auth_users",
        (("www-authenticate", 'Basic realm="gpud", charset="UTF-8"'),),
    ),
    Refused.FOREIGN_PAGE: RefusalAnswer(
        403, "gpud answers no page but its own", "open the address itself, or ask from a program"
    ),
    Refused.BODY_TOO_LARGE: RefusalAnswer(
        413, "no body is read", "send GET or HEAD without one", closes=True
    ),
    Refused.TARGET_TOO_LONG: RefusalAnswer(
        414, "the path is too long", "ask for less at once", closes=True
    ),
    Refused.FOREIGN_HOST: RefusalAnswer(
        421,
        "this address is not served under that name",
        "use 127.0.0.1 or localhost, or set [http] hosts",
    ),
    Refused.TOO_MANY_PASSWORDS: RefusalAnswer(
        429,
        "too many passwords are being checked",
        "ask again in two seconds",
        (("retry-after", "2"),),
    ),
    Refused.HEADERS_TOO_LARGE: RefusalAnswer(
        431, "there are too many headers, or too long ones", "send fewer", closes=True
    ),
}
"""Refusals with an answer; for the others the connection is closed."""
