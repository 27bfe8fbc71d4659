"""Command-line arguments: one table of all verbs and their options, the most used first.

The parser is made from it, and from the parser the completion of shells and the man page.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import gpud
from gpud.core.text import escaped
from gpud.install.options import INSTALL, UNINSTALL, Option, flag, value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

OK, PROBLEM, USAGE, NOT_RUNNING, NO_PERMISSION, INTERRUPTED = 0, 1, 2, 3, 4, 130
EXIT_CODES: Final = {
    OK: "well",
    PROBLEM: "a problem was found",
    USAGE: "usage or configuration",
    NOT_RUNNING: "not running",
    NO_PERMISSION: "no permission",
    INTERRUPTED: "Ctrl-C",
}
LEVELS: Final = ("debug", "info", "warning", "error", "critical")
COMPONENTS: Final = ("agent", "root", "dockerd")
SHELLS: Final = ("bash", "zsh", "fish")
UNITS_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


class Verb(NamedTuple):
    """One verb or action. A tuple of arguments is a group of which one may be given."""

    text: str
    arguments: tuple[Option | tuple[Option, ...], ...] = ()
    actions: Mapping[str, Verb] = {}
    required: bool = True
    usage: str | None = None

    @property
    def groups(self) -> list[tuple[Option, ...]]:
        """The arguments as groups of which one may be given."""
        return [(each,) if isinstance(each, Option) else each for each in self.arguments]


def moment(text: str) -> float:
    """Read ``2h`` (ago), a date (its first moment here), a date and time, or RFC 3339; Unix time.

    Where no offset from UTC is given, this machine's time zone holds.
    """
    from datetime import datetime

    ago = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhdw])", text)
    if ago is not None:
        return time.time() - float(ago[1]) * UNITS_S[ago[2]]
    try:
        at_s = datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        at_s = math.nan
    if not math.isfinite(at_s):
        examples = "30m, 2h, 3d, 2026-11-01 or 2026-11-01T08:00:00Z"
        raise argparse.ArgumentTypeError(f"{text!a:.40} is no moment: write {examples}")
    return at_s


def _whole(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        short = text.isascii() and text.isdigit() and len(text) <= len(str(most))
        if not (short and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"must be {least} to {most}, not {text!r}")
        return int(text)

    return read


def _seconds(text: str) -> float:
    least, most = 0.1, 3600.0
    with suppress(ValueError):
        if least <= (seconds := float(text)) <= most:
            return seconds
    raise argparse.ArgumentTypeError(f"must be {least:g} to {most:g} seconds, not {text!r}")


def _choice(names: str, choices: Sequence[str], text: str | None = None, **how: Any) -> Option:  # noqa: ANN401
    return Option(names.split(), {"choices": choices, "help": text, **how})


_JSON = flag("--json", "print one JSON document")
_COLOR = value(
    "--color",
    "WHEN",
    "in colour: auto (on a terminal), always, never",
    choices=("auto", "always", "never"),
    default="auto",
)
_WHEN = "30m, 2h, 3d, a date, or a time as in RFC 3339"
_AGAIN = "only this one, may be given again"
_SEVERAL: Final = {"action": "append", "default": []}
_CHOSEN = (
    value("--since", "WHEN", _WHEN, type=moment),
    value("--until", "WHEN", "likewise", type=moment),
    value("--probe", "NAME", _AGAIN, **_SEVERAL),
    value("--mode", "NAME", _AGAIN, **_SEVERAL),
    value("--gpu", "INDEX|UUID|cpu", _AGAIN, **_SEVERAL),
    flag("--telemetry", "temperature, power, clocks, use and throttling, not runs"),
)
_STREAMS = (
    value("--gpu", "INDEX|UUID", "of this GPU only, or of the cpu"),
    value("--probe", "NAME", "of this probe only"),
    value("--mode", "NAME", "of this mode only"),
)
_ALL = flag("--all", "of everything")

_EXPORT = Verb(
    "write every row as CSV, the oldest first",
    (
        # What stands before the word export holds where it is not given again.
        *(Option(names, {**how, "default": argparse.SUPPRESS}) for names, how in _CHOSEN),
        flag("--hourly", "hours, which are kept for longer, not runs or minutes"),
    ),
)
_BASELINE: Final = {
    "show": Verb("say what is usual, and how the present compares", (*_STREAMS, _JSON)),
    "accept": Verb(
        "take the current speed as usual: alerts about it end",
        (
            *_STREAMS,
            _ALL,
            value("id", "ID", "of an alert: what it is about", nargs="?"),
        ),
    ),
    "reset": Verb("forget what was usual and learn it anew", (*_STREAMS, _ALL)),
}
_ALERTS: Final = {
    "ack": Verb(
        "say that you have seen one: no more reminders",
        (value("id", "ID", "as `gpud alerts` shows it, or its beginning"),),
    ),
    "test": Verb(
        "send a test alert to one sink, or to all of them",
        (value("sink", "SINK", "such as webhook (default: all)", nargs="?"),),
    ),
}
_WATCH = value(
    "--watch",
    "SECONDS",
    "show it until q is pressed, anew every so many seconds (1)",
    nargs="?",
    type=_seconds,
    const=1.0,
)
_SHORT = flag("--short", "one line for a prompt or a status bar, as the agent keeps it in a file")
_PROBE = (
    value("names", "NAME", "which (default: all)", nargs="*"),
    flag("--list", "list the probes and run none"),
    _JSON,
    value(
        "--gpu",
        "INDEX|UUID",
        "which GPU, may be given again (default: all); the CPU's probes run anyway",
        **_SEVERAL,
    ),
    value("--repeat", "N", "run everything N times, 1 to 100", type=_whole(1, 100), default=1),
)
_HISTORY = (
    *_CHOSEN,
    value(
        "--limit",
        "N",
        "the newest N rows (default: 100, and all with --since)",
        type=_whole(1, 100_000),
    ),
    (flag("--csv", "print CSV"), flag("--json", "print JSON")),
)
_LOGS = (
    flag("-f --follow", "and what is written from now on"),
    value("--since", "WHEN", "30m, 2h, 3d, a date, or RFC 3339", type=moment),
    value(
        "-n --lines",
        "N",
        "the newest N lines (default: 100, and all with --since)",
        type=_whole(0, 100_000),
    ),
    _choice("--level", LEVELS, "this and what is worse"),
    _choice("--component", COMPONENTS, _AGAIN, **_SEVERAL),
    _COLOR,
)
_GPUS = (
    _choice("action", ("forget",)),
    value("gpus", "GPU", "number or UUID; an unknown one lists them; or all", nargs="+"),
)
_CAPTURE = (value("-o --output", "FILE", "where to (default: gpud-capture-DATE.json; -: here)"),)
_CONFIG: Final = {
    "show": Verb("show the settings in force, without secrets", (_JSON,)),
    "check": Verb("check the settings files as a start of gpud does"),
    "hash-password": Verb("make a hash for basic_auth_users"),
}
_USAGE = "gpud history [OPTION...] [export]"

DESCRIPTION: Final = "Keeps Docker running and watches what the GPU can do, in WSL2 and on Linux."
TOP: Final = (
    value("--home", "DIR", "where the tree of files begins (default: / when installed)"),
    Option(["--version"], {"action": "version", "version": f"gpud {gpud.__version__}"}),
    value("--config", "FILE", "the settings file (default: etc/gpud/gpud.toml)"),
)
VERBS: Final = {
    "status": Verb("say how everything is, on one screen", ((_JSON, _WATCH, _SHORT), _COLOR)),
    "top": Verb("show the GPU from second to second, with its processes, until q", (_COLOR,)),
    "doctor": Verb("check this machine, say what is wrong and how to mend it", (_JSON,)),
    "probe": Verb("run probes now, by hand", _PROBE),
    "history": Verb(
        "print what was measured, or write all of it as CSV",
        _HISTORY,
        {"export": _EXPORT},
        required=False,
        usage=_USAGE,
    ),
    "baseline": Verb(
        "say what is usual for each probe (show), or decide about it",
        actions=_BASELINE,
        required=False,
    ),
    "alerts": Verb(
        "say what is wrong now, since when and why",
        (flag("--all", "also what ended in the last day"), _JSON),
        _ALERTS,
        required=False,
    ),
    "logs": Verb("print what agent, root and dockerd wrote, by time", _LOGS),
    "up": Verb("start gpud in the background (root, through sudo)"),
    "down": Verb(
        "stop gpud; dockerd and its containers keep running",
        (flag("--docker", "stop dockerd too"),),
    ),
    "restart": Verb("stop and start gpud; dockerd is adopted, not restarted"),
    "run": Verb("run in the foreground until Ctrl-C"),
    "config": Verb("show or check the settings, or hash a password", (), _CONFIG),
    "gpus": Verb("forget GPUs that were taken out on purpose", _GPUS),
    "capture": Verb("record this machine for a bug report, without names", _CAPTURE),
    "install": Verb("install gpud for this machine, or upgrade it", INSTALL),
    "uninstall": Verb("remove what gpud install made", UNINSTALL),
    "update": Verb(
        "say whether there is a newer gpud, and what it changes",
        (
            Option(["--check"], {"action": "store_true", "required": True, "help": "look"}),
            value("--wheelhouse", "DIR", "look there and not in the package index"),
        ),
    ),
    "completion": Verb("print the completion script of a shell", (_choice("shell", SHELLS),)),
    "version": Verb("print the version", (_JSON,)),
}


class _Help(argparse.HelpFormatter):
    """Help as wide as the terminal, which is asked where help is written and nowhere else."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=80)

    def format_help(self) -> str:
        import shutil  # takes 2 ms, and argparse makes a formatter for every argument

        self._width = shutil.get_terminal_size().columns - 2
        return super().format_help()


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line and the fix in the next, as every other error of gpud's."""

    def error(self, message: str) -> NoReturn:
        """Print both on stderr and end with 2."""
        fix = f"  fix: {self.prog} --help"
        print(escaped(f"gpud: {message}"), fix, sep="\n", file=sys.stderr)
        self.exit(USAGE)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401  # as argparse
        """Reject words that no option takes; the fix is the help of this verb."""
        read, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return read, rest


def sentence(text: str) -> str:
    """Write a help text as a sentence."""
    return f"{text[0].upper()}{text[1:]}."


def verb_in(words: Sequence[str]) -> str | None:
    """Return the verb of a command line if nothing but options of gpud itself stands before it."""
    rest = iter(words)
    for word in rest:
        if word in VERBS:
            return word
        if word in {"--home", "--config"}:
            next(rest, None)
        elif not word.startswith(("--home=", "--config=")):
            break
    return None


def parser(only: str | None = None) -> Parser:
    """Build the parser of everything, or of one verb, in a fifth of the time."""
    codes = ", ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
    top = Parser(
        prog="gpud",
        formatter_class=_Help,
        description=DESCRIPTION,
        epilog=f"Exit codes: {codes}. gpud COMMAND --help says more; so does man gpud.",
    )
    for names, how in TOP:
        top.add_argument(*names, **how)
    verbs = top.add_subparsers(prog=top.prog, dest="verb", required=True, metavar="COMMAND")
    for name, verb in VERBS.items() if only is None else [(only, VERBS[only])]:
        described = verbs.add_parser(
            name,
            help=verb.text,
            description=sentence(verb.text),
            usage=verb.usage,
            formatter_class=_Help,
        )
        _fill(described, verb)
    return top


def _fill(parser: argparse.ArgumentParser, verb: Verb) -> None:
    for group in verb.groups:
        target = parser.add_mutually_exclusive_group() if len(group) > 1 else parser
        for names, how in group:
            target.add_argument(*names, **how)
    if not verb.actions:
        return
    metavar = "ACTION" if verb.required else "[ACTION]"
    actions = parser.add_subparsers(
        prog=parser.prog, dest="action", required=verb.required, metavar=metavar
    )
    for name, action in verb.actions.items():
        described = actions.add_parser(
            name, help=action.text, description=action.text, formatter_class=_Help
        )
        _fill(described, action)
