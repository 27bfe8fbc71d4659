"""Command-line arguments: every verb with its options, the most used first.

The completion of shells and the man page are made from this, so it says all there is to say.
"""

from __future__ import annotations

import argparse
import re
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import gpud
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_REPEATS: Final = 100
MOST_ROWS: Final = 100_000
SHORTEST_WATCH_S: Final = 0.1
LONGEST_WATCH_S: Final = 3600.0
COLOURS: Final = ("auto", "always", "never")
LEVELS: Final = ("debug", "info", "warning", "error", "critical")
COMPONENTS: Final = ("agent", "root", "dockerd")
SHELLS: Final = ("bash", "zsh", "fish", "tcsh")

ACTIONS: Final = {
    "show": "say what is normal, and how the present compares",
    "accept": "take the current speed for normal: alerts about it end",
    "reset": "forget what was normal and learn it anew",
}
EXIT_CODES: Final = {
    0: "well",
    1: "a problem was found",
    2: "usage or configuration",
    3: "not running",
    4: "no permission",
    130: "Ctrl-C",
}


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line and the fix in the next, as every other error of gpud's."""

    def error(self, message: str) -> NoReturn:
        """Print both on stderr and end with 2."""
        print(escaped(f"gpud: {message}"), file=sys.stderr)
        print(
            f"  fix: {escaped(self._suggestion(message) or f'{self.prog} --help')}", file=sys.stderr
        )
        self.exit(2)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401  # as argparse
        """Reject words that no option takes; the fix names an option of this verb, or its help."""
        read, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return read, rest

    def _suggestion(self, message: str) -> str | None:
        """Guess what was meant in place of a word that is no choice and no option."""
        choice = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        option = re.search(r"unrecognized arguments: --([^ =]+)", message)
        if choice is not None:
            typed, names = choice[1], [word.strip("' ") for word in choice[2].split(",")]
        elif option is not None:  # without the dashes, which would make all of them alike
            typed, names = option[1], [name.lstrip("-") for name in self._option_string_actions]
        else:
            return None
        near = get_close_matches(typed, names, n=1)
        return f"did you mean {'' if choice else '--'}{near[0]}?" if near else None


def parser() -> Parser:
    """Build the parser of everything."""
    codes = ", ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
    top = Parser(
        prog="gpud",
        description="Keeps Docker running and watches what the GPU can do, in WSL2 and on Linux.",
        epilog=f"Exit codes: {codes}. gpud COMMAND --help says more; so does man gpud.",
    )
    home = "where the tree of files begins (default: / when installed)"
    top.add_argument("--home", metavar="DIR", help=home)
    top.add_argument("--version", action="version", version=f"gpud {gpud.__version__}")
    config = "the settings file (default: etc/gpud/gpud.toml)"
    top.add_argument("--config", type=Path, metavar="FILE", help=config)
    verbs = top.add_subparsers(dest="verb", required=True, metavar="COMMAND")

    def verb(name: str, text: str) -> argparse.ArgumentParser:
        return verbs.add_parser(name, help=text, description=_sentence(text))

    _status_options(verb("status", "say how everything is, on one screen"))
    doctor = verb("doctor", "check this machine, say what is wrong and how to mend it")
    _json(doctor)
    _probe_options(verb("probe", "run probes now, by hand"))
    _history_options(verb("history", "print what was measured, or write all of it as CSV"))
    _decision_options(verb)
    _log_options(verb("logs", "print what agent, root and dockerd wrote, by time"))
    verb("up", "start gpud in the background (root, through sudo)")
    down = verb("down", "stop gpud; dockerd and its containers keep running")
    down.add_argument("--docker", action="store_true", help="stop dockerd too")
    verb("restart", "stop and start gpud; dockerd is adopted, not restarted")
    verb("run", "run in the foreground until Ctrl-C")
    text = "show the settings in force, check the file, or make a hash for basic_auth_users"
    verb("config", text).add_argument("action", choices=("show", "check", "hash-password"))
    gpus = verb("gpus", "forget GPUs that were taken out on purpose")
    gpus.add_argument("action", choices=("forget",))
    gpus.add_argument(
        "uuids", nargs="+", metavar="UUID", help="which, as `gpud status` says; or all"
    )
    capture = verb("capture", "record this machine for a bug report, without names")
    capture.add_argument(
        "-o", "--output", metavar="FILE", help="where to (default: gpud-capture-DATE.json; -: here)"
    )
    capture.add_argument(
        "--with-programs",
        action="store_true",
        help="start nvidia-smi too; each start costs Windows memory on some versions of WSL",
    )
    completion = verb("completion", "print the completion script of a shell")
    completion.add_argument("shell", choices=SHELLS)
    verb("version", "print the version")
    return top


def _status_options(status: argparse.ArgumentParser) -> None:
    forms = status.add_mutually_exclusive_group()
    _json(forms)
    forms.add_argument(
        "--watch",
        nargs="?",
        type=_seconds,
        const=1.0,
        metavar="SECONDS",
        help="show it until q is pressed, anew every so many seconds (1)",
    )
    _colour(status)


def _probe_options(probe: argparse.ArgumentParser) -> None:
    probe.add_argument("names", nargs="*", metavar="NAME", help="which (default: all)")
    probe.add_argument("--list", action="store_true", help="list the probes and run none")
    _json(probe)
    probe.add_argument(
        "--gpu",
        action="append",
        default=[],
        metavar="INDEX|UUID",
        help="which GPU, may be given again (default: all); the CPU's probes run anyway",
    )
    probe.add_argument(
        "--repeat", type=_repeats, default=1, metavar="N", help="run everything N times, 1 to 100"
    )


def _log_options(logs: argparse.ArgumentParser) -> None:
    logs.add_argument("-f", "--follow", action="store_true", help="and what is written from now on")
    logs.add_argument("--since", metavar="WHEN", help="30m, 2h, 3d, a date, or RFC 3339")
    logs.add_argument(
        "-n",
        "--lines",
        type=_lines,
        metavar="N",
        help="the newest N lines (default: 100, and all with --since)",
    )
    logs.add_argument("--level", choices=LEVELS, help="this and what is worse")
    logs.add_argument(
        "--component",
        action="append",
        default=[],
        choices=COMPONENTS,
        help="only this one, may be given again",
    )
    logs.add_argument("--json", action="store_true", help="print one JSON object a line")
    _colour(logs)


def _json(to: argparse._ActionsContainer) -> None:
    to.add_argument("--json", action="store_true", help="print one JSON document")


def _colour(to: argparse.ArgumentParser) -> None:
    text = "in colour: auto (on a terminal), always, never"
    to.add_argument("--color", choices=COLOURS, default="auto", metavar="WHEN", help=text)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _history_options(history: argparse.ArgumentParser) -> None:
    """Add what chooses rows, before and after ``export`` alike."""

    def chosen(parser: argparse.ArgumentParser, *, nothing: Any) -> None:  # noqa: ANN401
        moment = "30m, 2h, 3d, a date, or a time as in RFC 3339"
        several = nothing if nothing is argparse.SUPPRESS else []
        parser.add_argument("--since", default=nothing, metavar="WHEN", help=moment)
        parser.add_argument("--until", default=nothing, metavar="WHEN", help="likewise")
        for name, metavar, text in (
            ("--probe", "NAME", "only this one"),
            ("--mode", "NAME", "only this one"),
            ("--gpu", "INDEX|UUID|cpu", "only this one"),
        ):
            parser.add_argument(
                name,
                action="append",
                default=several,
                metavar=metavar,
                help=f"{text}, may be given again",
            )

    history.usage = "gpud history [OPTION...] [export]"
    chosen(history, nothing=None)
    history.add_argument(
        "--limit",
        type=_rows,
        metavar="N",
        help="the newest N rows (default: 100, and all with --since)",
    )
    history.set_defaults(form="table", action=None)
    forms = history.add_mutually_exclusive_group()
    for form in ("csv", "json"):
        forms.add_argument(
            f"--{form}", dest="form", action="store_const", const=form, help=f"print {form.upper()}"
        )
    actions = history.add_subparsers(
        prog=history.prog, metavar="ACTION", help="leave it out to print"
    )
    text = "write every row as CSV, the oldest first"
    export = actions.add_parser("export", help=text, description=text)
    export.set_defaults(action="export", hourly=False)
    chosen(export, nothing=argparse.SUPPRESS)
    which = export.add_mutually_exclusive_group()
    which.add_argument("--raw", action="store_false", dest="hourly", help="runs (the default)")
    which.add_argument("--hourly", action="store_true", help="hours: they are kept for longer")
    export.add_argument("-o", "--output", metavar="FILE", help="where to (default, and -: here)")


def _decision_options(verb: Callable[[str, str], argparse.ArgumentParser]) -> None:
    """Add ``baseline`` and ``alerts``."""
    baseline = verb("baseline", "say what is normal for each probe, or decide about it")
    actions = baseline.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in ACTIONS.items():
        action = actions.add_parser(name, help=text, description=text)
        action.add_argument("--gpu", metavar="INDEX|UUID", help="of this GPU only, or of the cpu")
        action.add_argument("--probe", metavar="NAME", help="of this probe only")
        action.add_argument("--mode", metavar="NAME", help="of this mode only")
        if name == "show":
            action.add_argument("--json", action="store_true", help="print one JSON document")
        else:
            action.add_argument("--all", action="store_true", help="of everything")
        if name == "accept":
            action.add_argument(
                "what",
                nargs="*",
                metavar="ID|PROBE",
                help="an alert's ID, or a probe and its mode",
            )
    alerts = verb("alerts", "say what is wrong now, since when and why")
    alerts.add_argument("--all", action="store_true", help="also what ended in the last day")
    alerts.add_argument("--json", action="store_true", help="print one JSON document")
    actions = alerts.add_subparsers(dest="action", metavar="[ACTION]")
    text = "say that you have seen one: no more reminders"
    ack = actions.add_parser("ack", help=text, description=text)
    ack.add_argument("id", metavar="ID", help="as `gpud alerts` shows it, or its beginning")
    text = "send a test alert to one sink, or to all of them"
    test = actions.add_parser("test", help=text, description=text)
    test.add_argument("sink", nargs="?", metavar="SINK", help="such as webhook (default: all)")


def _repeats(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_REPEATS):
        raise argparse.ArgumentTypeError(f"must be 1 to {MOST_REPEATS}, not {text!r}")
    return int(text)


def _rows(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_ROWS):
        raise argparse.ArgumentTypeError(f"must be 1 to {MOST_ROWS}, not {text!r}")
    return int(text)


def _lines(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MOST_ROWS))):
        raise argparse.ArgumentTypeError(f"must be 0 to {MOST_ROWS}, not {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not SHORTEST_WATCH_S <= seconds <= LONGEST_WATCH_S:
        raise argparse.ArgumentTypeError(
            f"must be {SHORTEST_WATCH_S:g} to {LONGEST_WATCH_S:g} seconds, not {text!r}"
        )
    return seconds
