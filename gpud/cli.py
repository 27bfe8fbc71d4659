"""The command line: one verb, one function, one exit code.

Exit codes: 0 well, 1 a problem was found, 2 usage or configuration, 3 not running, 4 no permission.
Verbs import what they need when they run, because ``gpud status`` must answer at once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gpud
from gpud import deciding, status
from gpud.core import masking
from gpud.core.errors import ConfigError, GpudError, StoreError
from gpud.core.settings import Settings, config_path, entries
from gpud.core.text import escaped
from gpud.place import (
    Place,
    as_the_agent,
    default_home,
    document,
    not_running,
    root_only,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OK, PROBLEM, USAGE, NOT_RUNNING, NO_PERMISSION = 0, 1, 2, 3, 4
INTERRUPTED = 130
MOST_REPEATS = 100
MOST_ROWS = 100_000
MOST_DAYS = 3650


def parser() -> argparse.ArgumentParser:
    """Build the parser; the completion scripts and the man page are made from it."""
    top = argparse.ArgumentParser(
        prog="gpud",
        description="Keeps Docker running and watches what the GPU can do, in WSL2 and on Linux.",
        epilog="Exit codes: 0 well, 1 a problem was found, 2 usage or configuration, "
        "3 not running, 4 no permission.",
    )
    top.add_argument("--home", help="where the tree of files begins (default: / when installed)")
    top.add_argument("--version", action="version", version=f"gpud {gpud.__version__}")
    top.add_argument("--config", type=Path, help="the settings file (default: etc/gpud/gpud.toml)")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="COMMAND")

    def verb(name: str, run: Callable[..., int], text: str) -> argparse.ArgumentParser:
        added = verbs.add_parser(name, help=text, description=text)
        added.set_defaults(run=run)
        return added

    verb("up", _up, "start gpud in the background (root, through sudo)")
    down = verb("down", _down, "stop gpud; dockerd and its containers keep running")
    down.add_argument("--docker", action="store_true", help="stop dockerd too")
    verb("restart", _restart, "stop and start gpud; dockerd is adopted, not restarted")
    verb("run", _run, "run in the foreground until Ctrl-C")
    status = verb("status", _status, "say how everything is")
    status.add_argument("--json", action="store_true", help="print one JSON document")
    doctor = verb("doctor", _doctor, "check this machine, say what is wrong and how to mend it")
    doctor.add_argument("--json", action="store_true", help="print one JSON document")
    probe = verb("probe", _probe, "run probes now, by hand")
    probe.add_argument("names", nargs="*", metavar="NAME", help="which (default: all)")
    probe.add_argument("--list", action="store_true", help="list the probes and run none")
    probe.add_argument("--json", action="store_true", help="print one JSON document")
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
    capture = verb("capture", _capture, "record this machine for a bug report, without names")
    capture.add_argument(
        "-o", "--output", metavar="FILE", help="where to (default: gpud-capture-DATE.json; -: here)"
    )
    capture.add_argument(
        "--with-programs",
        action="store_true",
        help="start nvidia-smi too; each start costs Windows memory on some versions of WSL",
    )
    gpus = verb("gpus", _gpus, "forget GPUs that were taken out on purpose")
    gpus.add_argument("action", choices=("forget",))
    gpus.add_argument(
        "uuids", nargs="+", metavar="UUID", help="which, as `gpud status` says; or all"
    )
    _history_options(
        verb("history", _history, "print what was measured, copy it, or write all of it as CSV")
    )
    report = verb("report", _report, "say what changed in the last weeks, from the history")
    report.add_argument(
        "--days", type=_days, default=30.0, metavar="N", help="how far back (default: 30)"
    )
    report.add_argument("--html", metavar="FILE", help="write one page with charts (-: here)")
    report.add_argument("--json", action="store_true", help="print one JSON document")
    deciding.add(verb, _decide)
    config = verb("config", _config, "show the settings in force, or check the file")
    config.add_argument("action", choices=("show", "check"))
    verb("version", _version, "print the version")
    completion = verb("completion", _completion, "print the completion script of a shell")
    completion.add_argument("shell", choices=("bash", "zsh", "fish", "tcsh"))
    return top


def _history_options(history: argparse.ArgumentParser) -> None:
    """Add what chooses rows, before and after ``export`` alike."""

    def chosen(parser: argparse.ArgumentParser, *, nothing: Any) -> None:  # noqa: ANN401
        moment = "WHEN: 30m, 2h, 3d, a date, or a time as RFC 3339 has it"
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
    actions = history.add_subparsers(metavar="ACTION", help="leave it out to print")
    text = "write every row as CSV, the oldest first"
    export = actions.add_parser("export", help=text, description=text)
    export.set_defaults(action="export", hourly=False)
    chosen(export, nothing=argparse.SUPPRESS)
    which = export.add_mutually_exclusive_group()
    which.add_argument("--raw", action="store_false", dest="hourly", help="runs (the default)")
    which.add_argument("--hourly", action="store_true", help="hours: they are kept for longer")
    export.add_argument("-o", "--output", metavar="FILE", help="where to (default, and -: here)")
    text = "copy the history to a new file, while the agent writes it"
    backup = actions.add_parser("backup", help=text, description=text)
    backup.set_defaults(action="backup")
    backup.add_argument("file", metavar="FILE", help="a name that is not taken")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code; nothing but a bug ends in a traceback."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # `gpud doctor >&-`: whoever closed it wants to read nothing
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115  # for the whole life
    arguments = parser().parse_args(argv)
    home = str(Path(arguments.home).absolute()) if arguments.home else default_home()
    place = Place(home=home, config=(arguments.config or Path(config_path(home))).absolute())
    run: Callable[[argparse.Namespace, Place], int] = arguments.run
    try:
        return run(arguments, place)
    except BrokenPipeError:  # `gpud status | head`: nobody reads on, and that is fine
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except (GpudError, OSError) as error:
        words = (arguments.verb, getattr(arguments, "action", None))
        return _refuse(error, " ".join(word for word in words if word))
    except KeyboardInterrupt:
        return INTERRUPTED


def _refuse(error: GpudError | OSError, verb: str) -> int:
    """Say what went wrong in a line, the fix in another, and give the exit code."""
    fix = error.fix if isinstance(error, GpudError) else None
    code = PROBLEM
    if isinstance(error, ConfigError):
        code = USAGE
    elif isinstance(error, PermissionError) or (
        isinstance(error, StoreError) and error.reason == "not_permitted"
    ):
        code, fix = NO_PERMISSION, f"sudo gpud {verb}"
    _say(f"gpud: {error}" + (f"\n  fix: {fix}" if fix else ""), file=sys.stderr)
    return code


def _say(text: str, file: Any = None) -> None:  # noqa: ANN401  # any text stream
    """Print text that may hold a driver's or Docker's words: no control character gets through."""
    print(escaped(text, lines=True), file=file or sys.stdout, flush=True)


def _up(_: argparse.Namespace, place: Place) -> int:
    settings = root_only(place)
    from gpud.root import control

    code = control.up(settings, config_path=place.config)
    _say("gpud runs")
    return code


def _down(arguments: argparse.Namespace, place: Place) -> int:
    settings = root_only(place)
    from gpud.root import control

    code = control.down(settings, docker=arguments.docker)
    rest = "" if arguments.docker else "; dockerd and its containers run on"
    _say(f"gpud has stopped{rest}. Opened shells leave it at that until `gpud up` or the next boot")
    return code


def _restart(_: argparse.Namespace, place: Place) -> int:
    settings = root_only(place)
    from gpud.root import control

    code = control.restart(settings, config_path=place.config)
    _say("gpud has started anew; dockerd and its containers ran on")
    return code


def _run(_: argparse.Namespace, place: Place) -> int:
    settings = root_only(place)
    from gpud.root import supervisor

    url = f"http://{settings.http.listen}"
    _say(f"gpud {gpud.__version__}  page {url}/  metrics {url}/metrics  state {settings.home}")
    if os.geteuid() != 0:
        _say("not root: dockerd is watched, not managed", file=sys.stderr)
    return supervisor.run(settings, config_path=place.config, foreground=True)


def _status(arguments: argparse.Namespace, place: Place) -> int:
    settings, trouble = place.settings_or_defaults()
    if trouble is not None:
        _say(f"gpud: {trouble}", file=sys.stderr)  # what runs runs on with the settings it read
    told = document(Path(settings.run_dir))
    if told is None:
        return _nobody(place, Path(settings.run_dir), as_json=arguments.json)
    if arguments.json:
        print(json.dumps(told))
    else:
        print(*status.lines(told, time.time()), sep="\n", flush=True)
    return PROBLEM if told["state"] != "ok" or status.unseen(told) else OK


def _nobody(place: Place, run_dir: Path, *, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"schema_version": 1, "state": "not_running"}))
    else:
        _say(not_running(place, run_dir))
    return NOT_RUNNING


def _doctor(arguments: argparse.Namespace, place: Place) -> int:
    settings, trouble = place.settings_or_defaults()
    from gpud.doctor import show

    return show.doctor(settings, trouble, os.environ, as_json=arguments.json)


def _probe(arguments: argparse.Namespace, place: Place) -> int:
    from gpud.agent.byhand import command, session

    if arguments.list:
        return command.listing(arguments.names, as_json=arguments.json)
    settings = place.settings()
    as_the_agent(settings, place)
    request = session.Request(tuple(arguments.names), tuple(arguments.gpu), arguments.repeat)
    return command.run(settings, request, as_json=arguments.json)


def _capture(arguments: argparse.Namespace, place: Place) -> int:
    settings, _ = place.settings_or_defaults()
    from gpud.agent.capture import command

    request = command.Request(arguments.output, programs=arguments.with_programs)
    return command.run(settings, place.config, request)


def _gpus(arguments: argparse.Namespace, place: Place) -> int:
    settings = root_only(place)
    from gpud.agent import forgetting

    as_the_agent(settings, place)
    forgotten = forgetting.forget(Path(settings.state_dir), arguments.uuids, now_s=time.time())
    for uuid, one in forgotten.items():
        _say(f"{one.name} ({uuid}) is forgotten")
    _say("what is there is expected again" if forgotten else "there was no GPU to forget")
    return OK


def _history(arguments: argparse.Namespace, place: Place) -> int:
    settings = place.settings()
    from gpud.agent.history import command

    if arguments.action == "backup":
        return command.copy(settings, arguments.file)
    request = command.Request(
        since=arguments.since,
        until=arguments.until,
        probes=tuple(arguments.probe),
        modes=tuple(arguments.mode),
        gpus=tuple(arguments.gpu),
        limit=arguments.limit,
    )
    if arguments.action is None or arguments.output in {None, "-"}:
        _not_as_root(settings, place)
    if arguments.action == "export":
        return command.export(
            settings, request, hourly=arguments.hourly, output=arguments.output, now_s=time.time()
        )
    return command.show(settings, request, form=arguments.form, now_s=time.time())


def _not_as_root(settings: Settings, place: Place) -> None:
    """Let root open no file that the agent may have made; whoever writes a file stays who he is."""
    if os.geteuid() == 0:
        as_the_agent(settings, place)


def _report(arguments: argparse.Namespace, place: Place) -> int:
    settings, _ = place.settings_or_defaults()
    from gpud.report import command

    if arguments.html in {None, "-"}:
        _not_as_root(settings, place)
    directory, as_json = Path(settings.state_dir), arguments.json
    return command.run(directory, arguments.days, html=arguments.html, as_json=as_json)


def _decide(arguments: argparse.Namespace, place: Place) -> int:
    """Show what the running agent says, or write down what a person says to it."""
    shows = arguments.action in deciding.SHOWN
    settings = place.settings_or_defaults()[0] if shows else root_only(place)
    if arguments.action == "test":
        return _test_sinks(arguments, place, settings)
    told = document(Path(settings.run_dir))
    if not shows:
        wanted = deciding.wanted(arguments, told)
        as_the_agent(settings, place)
        _say(deciding.decided(wanted, Path(settings.state_dir), time.time()))
        return OK
    if told is None:
        return _nobody(place, Path(settings.run_dir), as_json=arguments.json)
    shown = deciding.shown(arguments, told)
    print(shown.text, flush=True)
    return PROBLEM if shown.problem else OK


def _test_sinks(arguments: argparse.Namespace, place: Place, settings: Settings) -> int:
    as_the_agent(settings, place)
    from gpud.agent import alerttest

    lines, code = alerttest.run(settings, arguments.sink)
    _say("\n".join(lines))
    return code


def _repeats(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_REPEATS):
        raise argparse.ArgumentTypeError(f"must be 1 to {MOST_REPEATS}, not {text!r}")
    return int(text)


def _rows(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_ROWS):
        raise argparse.ArgumentTypeError(f"must be 1 to {MOST_ROWS}, not {text!r}")
    return int(text)


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = 0.0
    if not 0 < days <= MOST_DAYS:
        raise argparse.ArgumentTypeError(f"must be a number above 0, up to {MOST_DAYS}")
    return days


def _config(arguments: argparse.Namespace, place: Place) -> int:
    settings = place.settings()
    if arguments.action == "check":
        found = "is well" if place.config.exists() else "does not exist; the defaults hold"
        _say(f"{place.config} {found}")
        return OK
    for key, value in entries(settings):
        _say(f"{key} = {json.dumps(masking.shown(key, value))}")
    return OK


def _version(_: argparse.Namespace, __: Place) -> int:
    _say(f"gpud {gpud.__version__}")
    return OK


def _completion(arguments: argparse.Namespace, _: Place) -> int:
    import shtab

    print(shtab.complete(parser(), shell=arguments.shell))
    return OK
