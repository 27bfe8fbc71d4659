"""The command line: one verb, one function, one exit code.

Exit codes: 0 well, 1 a problem was found, 2 usage or configuration, 3 not running, 4 no permission.
Verbs import what they need when they run, because ``gpud status`` must answer at once.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import gpud
from gpud import portholder, settings_files
from gpud.arguments import parser
from gpud.core.errors import (
    ConfigError,
    DeniedError,
    GpudError,
    KeyPairError,
    NotRunningError,
    StoreError,
)
from gpud.core.settings import SECRET_KEYS, Settings, config_path, entries, secrets_path
from gpud.core.text import escaped, pasteable
from gpud.place import (
    Place,
    as_the_agent,
    as_the_caller,
    default_home,
    document,
    legible,
    not_running,
    program,
    root_only,
    with_fixes,
)
from gpud.show import status
from gpud.show.document import read
from gpud.show.headline import unseen

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["main", "parser"]

OK, PROBLEM, USAGE, NOT_RUNNING, NO_PERMISSION = 0, 1, 2, 3, 4
INTERRUPTED = 130
UNWRITABLE: Final = {
    errno.ENOSPC: "make room for it",
    errno.EBADF: "give the command an output that can be written to",
}
"""Errors of writing to stdout, and what helps."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code; nothing but a bug ends in a traceback."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # `gpud doctor >&-`: whoever closed it wants to read nothing
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115  # for the whole life
    words = sys.argv[1:] if argv is None else argv
    home = "/"
    try:
        if not words:
            parser().print_help(sys.stderr)
            return USAGE
        options = _parsed(words)
        if isinstance(options, int):
            return options
        home = str(Path(options.home).absolute()) if options.home else default_home()
        options.as_root = _as_root(words, home)
        place = Place(home=home, config=(options.config or Path(config_path(home))).absolute())
        code = RUN[options.verb](options, place)
        sys.stdout.flush()
    except BrokenPipeError:  # `gpud status | head`: nobody reads on, and that is fine
        _silence()
        return OK
    except (GpudError, OSError) as error:
        return _refuse(error, words, home)
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def _parsed(words: Sequence[str]) -> argparse.Namespace | int:
    """Read the words; an exit code where they were all that was to be done, such as --help."""
    try:
        return parser().parse_args(words)
    except SystemExit as ended:
        sys.stdout.flush()
        return int(ended.code or OK)


def _silence(stream: TextIO | None = None) -> None:
    """Let what waits in stdout's buffer go nowhere: it would be tried once more at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), (stream or sys.stdout).fileno())


def _as_root(words: Sequence[str], home: str) -> str:
    """Give the same command for root, whose environment has no GPUD_HOME."""
    start = program(home)
    if any(word.startswith("--ho") for word in words):
        start = start[:1]
    return shlex.join(["sudo", *start, *words])


def _refuse(error: GpudError | OSError, words: Sequence[str], home: str) -> int:
    """Say what went wrong in a line, the fix in another, and give the exit code."""
    fix = (
        pasteable(error.fix, program(home)) if isinstance(error, GpudError) and error.fix else None
    )
    code = PROBLEM
    try:
        sys.stdout.flush()
    except OSError:  # `gpud doctor >/dev/full`: whatever the verb says of it
        _silence()
    if isinstance(error, OSError) and error.filename is None and error.errno in UNWRITABLE:
        fix = UNWRITABLE[error.errno]
        error = GpudError(f"cannot write the result: {error.strerror}")
    if isinstance(error, ConfigError):
        code = USAGE
    elif isinstance(error, NotRunningError):
        code = NOT_RUNNING
    elif isinstance(error, DeniedError):
        code, fix = NO_PERMISSION, fix or _as_root(words, home)
    elif isinstance(error, PermissionError) or (
        isinstance(error, StoreError) and error.reason == "not_permitted"
    ):
        code, fix = NO_PERMISSION, _as_root(words, home)
    try:
        _say(f"gpud: {error}" + (f"\n  fix: {fix}" if fix else ""), file=sys.stderr)
    except OSError:  # nobody can be told; the exit code still says it
        _silence(sys.stderr)
    return code


def _say(text: str, file: Any = None) -> None:  # noqa: ANN401  # any text stream
    """Print text that may hold a driver's or Docker's words: no control character gets through."""
    print(escaped(text, lines=True), file=file or sys.stdout, flush=True)


def _startable(place: Place) -> Settings:
    """Check all settings as the agent will, and give what root itself needs: without secrets."""
    from gpud.root import agent

    agent.check_user(root_only(place))
    for warning in place.warnings():
        _say(f"gpud: {warning}", file=sys.stderr)
    return place.settings(with_secrets=False)


def _up(_: argparse.Namespace, place: Place) -> int:
    settings = _startable(place)
    from gpud.root import control

    code = control.up(settings, config_path=place.config)
    _say("gpud runs")
    return code


def _down(options: argparse.Namespace, place: Place) -> int:
    settings = root_only(place)
    from gpud.root import control

    stopped = control.down(settings, docker=options.docker)
    gpud_state = "gpud has stopped" if stopped.supervisor else "gpud was not running"
    dockerd_state = "; dockerd has stopped" if stopped.dockerd else ""
    if stopped.supervisor and not options.docker:
        dockerd_state = "; dockerd and its containers run on"
    _say(
        f"{gpud_state}{dockerd_state}. "
        "Opened shells leave it at that until `gpud up` or the next boot"
    )
    return OK


def _restart(_: argparse.Namespace, place: Place) -> int:
    settings = _startable(place)
    from gpud.root import control

    code = control.restart(settings, config_path=place.config)
    _say("gpud has started anew; dockerd and its containers ran on")
    return code


def _run(_: argparse.Namespace, place: Place) -> int:
    settings = _startable(place)
    from gpud.root import supervisor

    url = settings.http.url
    listener = portholder.listener_of(settings.http.port) if settings.http.port else None
    links = f"page {url}/  metrics {url}/metrics"
    if listener is not None:
        links = portholder.taken_message(settings.http.listen, listener)
    _say(f"gpud {gpud.__version__}  {links}  state {settings.home}")
    if os.geteuid() != 0:
        _say("not root: dockerd is watched, not managed", file=sys.stderr)
    return supervisor.run(settings, config_path=place.config, foreground=True)


def _settings_or_word(place: Place) -> Settings:
    """Go by the defaults where the file cannot be used, and say so: what runs runs on with its."""
    settings, trouble = place.settings_or_defaults()
    if trouble is not None:
        _say(f"gpud: {trouble}", file=sys.stderr)
    return settings


def _status(options: argparse.Namespace, place: Place) -> int:
    settings = _settings_or_word(place)
    run_dir = Path(settings.run_dir)
    if options.watch is not None:
        from gpud.term import watch

        return watch.run(
            lambda: document(run_dir),
            lambda: not_running(place, run_dir),
            every_s=options.watch,
            colour=options.color,
        )
    published = document(run_dir)
    if published is None:
        return _not_running(place, run_dir, as_json=options.json)
    if (start := program(place.home)) != ["gpud"]:
        published = with_fixes(published, start)
    if options.json:
        print(json.dumps(published))
    else:
        from gpud.term import paint, terminal

        with legible():
            shown = read(portholder.with_listener(published))
            lines = status.drawn(shown, time.time(), paint.view(sys.stdout))
        terminal.put(paint.painted(lines, colour=paint.wanted(options.color, sys.stdout)))
    with legible():
        return PROBLEM if published["state"] != "ok" or unseen(read(published)) else OK


def _logs(options: argparse.Namespace, place: Place) -> int:
    settings, _ = place.settings_or_defaults()
    from gpud.term.logs import command

    request = command.Request(
        components=tuple(dict.fromkeys(options.component)),
        since=options.since,
        count=options.lines,
        level=options.level,
        follow=options.follow,
        as_json=options.json,
        colour=options.color,
        as_root=options.as_root,
    )
    return command.run(settings, request, now_s=time.time())


def _not_running(place: Place, run_dir: Path, *, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"schema_version": 1, "state": "not_running"}))
    else:
        _say(not_running(place, run_dir))
    return NOT_RUNNING


def _doctor(options: argparse.Namespace, place: Place) -> int:
    settings, error = place.settings_or_defaults()
    from gpud.doctor import show

    start = program(place.home)
    return show.doctor(settings, error, os.environ, program=start, as_json=options.json)


def _probe(options: argparse.Namespace, place: Place) -> int:
    from gpud.verbs import probe

    return probe.listing(options) if options.list else probe.run(options, place.settings())


def _capture(options: argparse.Namespace, place: Place) -> int:
    settings, _ = place.settings_or_defaults()
    from gpud.agent.capture import command

    if not as_the_caller(settings, place):
        fix = "run it as an ordinary user, without sudo"
        raise GpudError("gpud capture does not run as root", fix=fix)
    return command.run(settings, place.config, options.output, programs=options.with_programs)


def _gpus(options: argparse.Namespace, place: Place) -> int:
    from gpud.verbs import acts

    _say(acts.forget(options, place, _settings_or_word(place)))
    return OK


def _history(options: argparse.Namespace, place: Place) -> int:
    from gpud.verbs import history

    history.run(options, place, _settings_or_word(place), time.time())
    return OK


def _decide(options: argparse.Namespace, place: Place) -> int:
    """Show what the running agent says, or have it do something."""
    from gpud.verbs import acts

    if options.action == "test":
        return _test_sinks(options, place, root_only(place))
    settings, _ = place.settings_or_defaults()
    act = {"ack": acts.acknowledge, "accept": acts.accept, "reset": acts.reset}.get(options.action)
    if act is not None:
        _say(act(options, place, settings))
        return OK
    published = document(Path(settings.run_dir))
    if published is None:
        return _not_running(place, Path(settings.run_dir), as_json=options.json)
    with legible():
        text, problem = acts.shown(options, published)
    print(text if options.json else pasteable(text, program(place.home)), flush=True)
    return PROBLEM if problem else OK


def _test_sinks(options: argparse.Namespace, place: Place, settings: Settings) -> int:
    as_the_agent(settings, place)
    from gpud.agent.alerts import trial

    lines, code = trial.run(settings, options.sink)
    _say("\n".join(lines))
    return code


def _config(options: argparse.Namespace, place: Place) -> int:
    if options.action == "hash-password":
        from gpud import hashing

        print(hashing.hashed())
        return OK
    settings = place.settings()
    hidden = settings_files.unreadable_secrets(place.home)
    if options.action == "check":
        return _check(settings, place, hidden)
    for key, value in entries(settings):
        if hidden is None or key not in SECRET_KEYS or value:
            _say(f"{key} = {json.dumps(settings_files.shown(key, value))}")
    if hidden is not None:
        fix = pasteable("sudo gpud config show", program(place.home))
        _say(f"gpud: you may not read {hidden}\n  fix: {fix}", file=sys.stderr)
    return OK


def _check(settings: Settings, place: Place, hidden: Path | None) -> int:
    """Check the settings as the agent uses them, and who else can read what is secret in them."""
    from gpud.root import agent

    agent.check_user(settings)
    for warning in place.warnings():
        _say(f"gpud: {warning}", file=sys.stderr)
    exposed = settings_files.exposed(place.config, place.home)
    for file in exposed:
        _say(f"gpud: {file}\n  fix: {file.fix}", file=sys.stderr)
    _check_key_pair(settings, place)
    if exposed:
        return PROBLEM
    secrets = Path(secrets_path(place.home))
    files = [path for path in (place.config, secrets) if path != hidden and path.exists()]
    for path in files:
        _say(f"{path} is valid")
    if not files:
        _say(f"{place.config} does not exist; the defaults hold")
    if hidden is not None:
        look = pasteable("sudo gpud config check", program(place.home))
        _say(f"you may not read {hidden}; {look} looks at it too")
    return OK


def _check_key_pair(settings: Settings, place: Place) -> None:
    """Load the listener's certificate as the agent will. ``Errors: ConfigError``."""
    if not settings.http.tls_server_config.enabled:
        return
    from gpud import keypair

    if os.geteuid() == 0:
        as_the_agent(settings, place)
    try:
        keypair.load(settings.http.tls_server_config)
    except KeyPairError as error:
        own = Path(settings.run_dir, "agent")
        if error.unreadable and own.is_dir() and own.stat().st_uid != os.geteuid():
            _say(f"{error}: not by you; sudo gpud config check looks as the agent does")
            return
        raise ConfigError(str(error), fix=error.fix) from error


def _version(_: argparse.Namespace, __: Place) -> int:
    _say(f"gpud {gpud.__version__}")
    return OK


def _completion(options: argparse.Namespace, _: Place) -> int:
    from gpud.term import completion

    print(completion.script(parser(), options.shell))
    return OK


RUN: Final[Mapping[str, Callable[[argparse.Namespace, Place], int]]] = {
    "alerts": _decide,
    "baseline": _decide,
    "capture": _capture,
    "completion": _completion,
    "config": _config,
    "doctor": _doctor,
    "down": _down,
    "gpus": _gpus,
    "history": _history,
    "logs": _logs,
    "probe": _probe,
    "restart": _restart,
    "run": _run,
    "status": _status,
    "up": _up,
    "version": _version,
}
"""What each verb does."""
