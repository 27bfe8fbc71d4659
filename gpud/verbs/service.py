"""``gpud up``, ``down``, ``restart`` and ``run``: the supervisor started and stopped.

On an installed gpud the first three are root's, and a sudo rule gives them to a person: they run
exactly its command, never their own interpreter (ADR 11).
"""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

import gpud
from gpud import client
from gpud.arguments import OK
from gpud.core.errors import AlreadyRunning, DeniedError
from gpud.install import manifest
from gpud.output import say
from gpud.reports import latest_root_report, published_by, supervisor

if TYPE_CHECKING:
    import argparse

    from gpud.core.settings import Settings
    from gpud.place import Place

INSTALLED: Final = "/opt/gpud/bin/gpud"
NO_START: Final = "New shells do not start it until `gpud up` or the next boot"
ANSWERS_S: Final = 2.0
BY_RULE: Final = ("up", "down", "restart")


def run(options: argparse.Namespace, place: Place) -> int:
    """Run one of the four. Errors: ``DeniedError`` where root is needed and no rule allows it."""
    if place.installed and os.geteuid() != 0 and options.verb in BY_RULE:
        return _through_sudo(options, place)
    place.root_only()
    if options.verb == "down":
        return _down(place, docker=options.docker)
    settings = _startable(place, running=options.verb == "restart")
    if options.verb == "run":
        return _run(settings, place)
    from gpud.root import control

    start = control.up if options.verb == "up" else control.restart
    ran_on = "; dockerd and its containers ran on" if _dockerd_up(settings) else ""
    code = start(settings, config_path=place.config)
    _await_agent(Path(settings.run_dir))
    say("gpud runs" if options.verb == "up" else f"gpud has restarted{ran_on}")
    return code


def _through_sudo(options: argparse.Namespace, place: Place) -> int:
    """Become the one command of the sudo rule, if the rule lets this person run it."""
    command = [INSTALLED, options.verb]
    fix = place.with_sudo
    if getattr(options, "docker", False):
        raise DeniedError("stopping dockerd needs root", fix=fix)
    try:
        listing = subprocess.run(["sudo", "-n", "-l", *command], capture_output=True, check=False)
        if listing.returncode == 0:
            os.execvp("sudo", ["sudo", "-n", *command])
    except OSError as error:
        raise DeniedError(
            f"cannot run sudo: {error.strerror}", fix=f"as root: {fix[5:]}"
        ) from error
    fix += f"; to need no password, get the rule: {manifest.owner()} --user $USER"
    raise DeniedError(f"gpud {options.verb} needs root, and no sudo rule gives it to you", fix=fix)


def _startable(place: Place, *, running: bool) -> Settings:
    """Check all settings as the agent will, and return those without secrets, for the supervisor.

    ``running`` is a restart: refused where the agent's user cannot read the files, so that the
    gpud of before goes on. Errors: ``ConfigError``.
    """
    from gpud.root import agent

    settings = place.settings()
    agent.check_user(settings)
    for warning in place.warnings():
        say(f"gpud: {warning}", error=True)
    if running:
        agent.check_files(settings, place.config)
    return place.settings(with_secrets=False)


def _down(place: Place, *, docker: bool) -> int:
    from gpud.root import control

    settings = place.usable_settings()  # what runs can be stopped whatever stands in the file
    dockerd_up = _dockerd_up(settings)
    stopped = control.down(settings, docker=docker)
    state = "gpud has stopped" if stopped.supervisor else "gpud was not running"
    if stopped.dockerd:
        state += "; dockerd has stopped"
    elif stopped.supervisor and dockerd_up and not docker:
        state += "; dockerd and its containers run on"
    say(f"{state}. {NO_START}" if place.installed else state)
    return OK


def _dockerd_up(settings: Settings) -> bool:
    report = latest_root_report(Path(settings.run_dir))
    return report is not None and report.dockerd.up is True


def _await_agent(run_dir: Path) -> None:
    """Wait a moment for the agent to publish and to listen: whoever asks next gets an answer.

    Root opens nothing that the agent writes, so the time of its file has to do. Errors: none.
    """
    status, deadline_s = run_dir / "agent" / "agent.json", time.monotonic() + ANSWERS_S
    while time.monotonic() < deadline_s:
        with suppress(OSError):
            if client.listens(run_dir) and published_by(
                status.lstat().st_mtime, latest_root_report(run_dir)
            ):
                return
        time.sleep(0.02)


def _run(settings: Settings, place: Place) -> int:
    from gpud.root import control

    if (running := supervisor(Path(settings.run_dir))) is not None:
        raise AlreadyRunning(running.pid)
    url = settings.http.url
    where = f"page {url}/  metrics {url}/metrics"
    if _taken(settings.http.host, settings.http.port):
        where = f"{settings.http.listen} is taken, and `gpud status` says what to do"
    say(f"gpud {gpud.__version__}  {where}  state {settings.home}")
    if os.geteuid() != 0:
        print("not root: dockerd is watched, not managed", file=sys.stderr, flush=True)
    if not (systemd := os.environ.pop("NOTIFY_SOCKET", "")):
        return control.run(settings, config_path=place.config, foreground=True)
    if settings.dockerd.policy == "auto":  # what systemd does not start here, nobody is to start
        settings = replace(settings, dockerd=replace(settings.dockerd, policy="observe"))
    ready = partial(_ready, systemd)
    return control.run(settings, config_path=place.config, foreground=False, ready=ready)


def _taken(host: str, port: int) -> bool:
    """Say whether somebody else listens there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def _ready(systemd: str) -> None:
    """Report to systemd that gpud runs. Source: sd_notify(3)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
        notices.sendto(b"READY=1", systemd.replace("@", "\0", 1))
