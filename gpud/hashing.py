"""``gpud config hash-password``: a password in, the line for ``basic_auth_users`` out."""

from __future__ import annotations

import getpass
import sys

from gpud.core.errors import ConfigError

COST = 10
LONGEST = 72


def hashed() -> str:
    """Ask on the terminal, twice, or read one line from a pipe; gives the bcrypt hash.

    Errors: ``ConfigError`` for a password that is empty, differs, or is longer than bcrypt looks.
    """
    if sys.stdin.isatty():
        password = getpass.getpass("Password: ")
        if getpass.getpass("Once more: ") != password:
            raise ConfigError("the two passwords differ")
    else:
        password = sys.stdin.readline().removesuffix("\n")
    encoded = password.encode("utf-8", "surrogateescape")
    if not encoded:
        raise ConfigError("there is no password", fix="type one, or give it on standard input")
    if len(encoded) > LONGEST:
        raise ConfigError(f"bcrypt looks at {LONGEST} bytes, and this password has {len(encoded)}")
    import bcrypt

    return bcrypt.hashpw(encoded, bcrypt.gensalt(COST)).decode()
