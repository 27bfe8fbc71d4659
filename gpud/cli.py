"""The command line: one verb is one module, imported when it runs; an error is an exit code.

Exit codes: 0 well, 1 a problem was found, 2 usage or configuration, 3 not running, 4 no permission.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import sys
from typing import TYPE_CHECKING, Final, TextIO

import gpud
from gpud.arguments import (
    INTERRUPTED,
    NO_PERMISSION,
    NOT_RUNNING,
    OK,
    PROBLEM,
    USAGE,
    parser,
    verb_in,
)
from gpud.core.errors import ConfigError, DeniedError, GpudError, NotRunningError
from gpud.core.text import escaped, pasteable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from gpud.place import Place

__all__ = ["main", "parser"]

MODULES: Final = {
    **dict.fromkeys(("up", "down", "restart", "run"), "service"),
    "uninstall": "install",
}
"""Modules of ``gpud.verbs`` that are not called as their verb."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; nothing but a bug ends in a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")  # an encoding that lacks a letter is no failure
    words = sys.argv[1:] if argv is None else argv
    place = None
    try:
        if not words:
            parser().print_help(sys.stderr)
            return USAGE
        options = _parsed(words)
        if isinstance(options, int):
            code = options
        elif options.verb == "version":
            code = _version(as_json=options.json)
        else:
            _import_msgspec()
            from gpud.place import place_of

            place = place_of(options.home, options.config, words)
            code = _run(options, place)
        sys.stdout.flush()
    except BrokenPipeError:  # `gpud status | head`: nobody reads on, and that is fine
        _silence(sys.stdout)
        return OK
    except (GpudError, OSError) as error:
        return _refuse(error, place)
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def _parsed(words: Sequence[str]) -> argparse.Namespace | int:
    """Read the words; an exit code where they were all that was to be done, such as --help."""
    try:
        return parser(verb_in(words)).parse_args(words)
    except SystemExit as ended:
        return int(ended.code or OK)


def _import_msgspec() -> None:
    """Import msgspec as if typing_extensions was not installed: typing has what it takes of it.

    Of the processor's time for `gpud status` that other import, with inspect, is a fifth.
    """
    if not {"msgspec", "typing_extensions"} & sys.modules.keys():
        sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # refuses the import
        import msgspec  # noqa: F401

        del sys.modules["typing_extensions"]


def _version(*, as_json: bool) -> int:
    document = f'{{"schema_version": 1, "version": "{gpud.__version__}"}}'  # json costs 5 ms
    print(document if as_json else f"gpud {gpud.__version__}")
    return OK


def _run(options: argparse.Namespace, place: Place) -> int:
    name = MODULES.get(options.verb, options.verb)
    code: int = importlib.import_module(f"gpud.verbs.{name}").run(options, place)
    return code


def _silence(stream: TextIO) -> None:
    """Discard what waits in a buffer: it would be tried once more at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _refuse(error: GpudError | OSError, place: Place | None) -> int:
    """Print what went wrong in a line, the fix in another, and return the exit code."""
    message, fix, code = str(error), None, _exit_code(error)
    try:
        sys.stdout.flush()
    except OSError:  # `gpud doctor >/dev/full`: whatever the verb printed
        _silence(sys.stdout)
    if isinstance(error, GpudError):
        fix = error.fix
    elif error.filename is None and error.errno == errno.ENOSPC:
        message, fix = f"cannot write the result: {error.strerror}", "make room for it"
    if place is not None:
        fix = pasteable(fix, place.program) if fix else fix
        fix = place.with_sudo if code == NO_PERMISSION and not fix else fix
    try:
        text = f"gpud: {message}" + (f"\n  fix: {fix}" if fix else "")
        print(escaped(text, lines=True), file=sys.stderr, flush=True)
    except OSError:  # nobody can read it; the exit code still says it
        _silence(sys.stderr)
    return code


def _exit_code(error: GpudError | OSError) -> int:
    match error:
        case ConfigError():
            return USAGE
        case NotRunningError():
            return NOT_RUNNING
        case DeniedError() | PermissionError():
            return NO_PERMISSION
        case _:
            return PROBLEM
