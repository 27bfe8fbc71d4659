"""Checks of gpud itself: supervisor and agent, settings, group, history on disk, and port."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from gpud import portholder, regular_file, settings_files
from gpud.core.errors import ConfigError
from gpud.core.health import Level
from gpud.core.http_settings import VERIFIED, HttpSettings
from gpud.core.report import RootReport
from gpud.core.settings import GROUP, config_path
from gpud.doctor.finding import Finding, advice, check, combined, ok, problem, unknown
from gpud.doctor.machine import Machine
from gpud.reports import NOT_RUNNING
from gpud.words import next_on_battery, unmeasured

ELSEWHERE = {"alerts", "containers", "cuda", "dockerd", "http", "nvml", "settings", "store"}
"""Components with a check of their own."""
FILE = "gpud.db"
MAGIC = b"SQLite format 3\0"
MIB = 1024 * 1024
LEAST_FREE, LITTLE_FREE = 100 * MIB, 1024 * MIB
BROKEN = "mend that line; `gpud config check` reads the file again, `sudo gpud restart` uses it"


@check(5, "gpud")
def gpud(machine: Machine) -> Finding:
    """Supervisor and agent run, and the parts that no other check is about."""
    if machine.root is None:
        start = settings_files.start_command(machine.settings.home)
        if Path(machine.settings.run_dir, "stopped").exists():
            return advice(f"{NOT_RUNNING} (stopped with gpud down)", start)
        return advice(machine.root_silence or NOT_RUNNING, start)
    return combined(_processes(machine, machine.root), *_parts(machine))


def _processes(machine: Machine, report: RootReport) -> Finding:
    agent = report.agent
    silent = not machine.agent.health  # between two ends of a crash loop it runs for a moment
    if agent.state != "running" or (silent and agent.detail):
        fix = agent.fix or f"{machine.settings.log_dir}/agent.log says more"
        return problem(f"the agent does not run: {agent.detail or agent.state}", fix)
    rights = "" if report.privileged else ", without root: dockerd is watched, not kept"
    return ok(f"{report.gpud_version} runs, process {report.process.pid}{rights}")


def _parts(machine: Machine) -> Iterator[Finding]:
    if not machine.agent.health:
        yield unknown("the agent has written no status yet", "ask again in a moment")
    if words := unmeasured(machine.agent):
        yield ok(
            f"{words}{next_on_battery(machine.agent)}"
        )  # it is meant to be, and figures grow old
    for name, health in sorted(machine.agent.health.items()):
        if name not in ELSEWHERE and health.level != Level.OK:
            make = problem if health.level == Level.FAILED else advice
            evidence = f"{name}: {health.detail or health.reason}"
            yield make(evidence, health.fix or "gpud status says more")


@check(7, "settings")
def settings(machine: Machine) -> Finding:
    """Settings files: gpud can read them, knows every key, and shows nobody a secret."""
    home = machine.settings.home
    path = Path(config_path(home))
    if error := machine.settings_error:
        if isinstance(error.__cause__, PermissionError):
            words = "is not for you to read: the other checks go by the defaults"
            return unknown(f"{path} {words}", "sudo gpud doctor")
        return problem(str(error), error.fix or BROKEN)
    try:
        exposed = settings_files.exposed(path, home)
        removed = settings_files.warnings(path, {})
    except ConfigError as error:
        return problem(str(error), error.fix or "gpud config check says more")
    if exposed or removed:
        former = (advice(words, f"remove it from {path}") for words in removed)
        return combined(*(advice(str(file), file.fix) for file in exposed), *former)
    hidden = settings_files.unreadable_secrets(home)
    rest = "" if hidden is None else f"; {hidden} is for root and the agent to read"
    return ok(f"as in {path}, or as they are by default{rest}")


@check(115, GROUP)
def users(machine: Machine) -> Finding:
    """Group whose members may ask gpud without a password: history, alerts, probe, logs."""
    person = machine.person
    if not machine.installed:
        return ok("a development run serves its own user")
    if person.uid == 0:
        return ok("root may ask")
    group = machine.account("/etc/group", GROUP)
    if group is None:
        return problem(f"there is no group {GROUP}", "run deploy/install again")
    user = machine.account("/etc/passwd", person.name)
    if person.name in group[-1].split(",") or (user is not None and user[3] == group[2]):
        return ok(f"you are in the group {GROUP}")
    fix = f"sudo usermod -aG {GROUP} {person.name} (works at once in shells that are open)"
    return advice(f"you are not in the group {GROUP}", fix)


@check(180, "store")
def store(machine: Machine) -> Finding:
    """File of the history, its size, its last write, and the free space beside it."""
    folder = machine.settings.state_dir
    health = machine.unwell("store")
    fix = (health and health.fix) or "gpud status says more"
    written = problem(str(health.detail), fix) if health else None
    return combined(_database(machine, f"{folder}/{FILE}"), written, _free_space(folder))


def _database(machine: Machine, place: str) -> Finding:
    try:
        facts = os.lstat(place)
        if not stat.S_ISREG(facts.st_mode):
            return problem(f"{place} is no plain file", f"move {place} away; gpud restart")
        if regular_file.read(place, len(MAGIC)) not in {MAGIC, b""}:
            fix = "gpud restart: it puts the file aside and begins a new history"
            return problem(f"{place} is no SQLite database", fix)
        log = Path(f"{place}-wal")
        written_s = max(facts.st_mtime, log.stat().st_mtime if log.exists() else 0.0)
    except FileNotFoundError:
        return ok(f"{place} is not there yet: gpud makes it when it measures")
    except PermissionError:
        return _closed_database(machine, place)
    except OSError as error:
        return unknown(f"{place} cannot be read: {error.strerror}", "look at its disk")
    age = _age(max(machine.now.wall_s - written_s, 0.0))
    return ok(f"{place}, {facts.st_size / MIB:.1f} MiB, last write {age} ago")


def _closed_database(machine: Machine, place: str) -> Finding:
    """Pass on what the agent says of a file that is not for everybody."""
    evidence = f"{place} is not for you to read, as it should be"
    health, size = machine.health("store"), machine.agent.store
    if health is None or health.level != Level.OK:
        return unknown(evidence, "`sudo gpud doctor` looks at the file itself")
    words = f": {size.n_bytes / MIB:.1f} MiB, {size.runs:,} runs" if size else ""
    return ok(f"{evidence}; the agent writes to it{words}")


def _free_space(folder: str) -> Finding | None:
    """Check the space for ordinary users where the folder is, or will be."""
    while folder not in {"", "/"} and not os.path.isdir(folder):  # noqa: PTH112
        folder = os.path.dirname(folder)  # noqa: PTH120
    try:
        facts = os.statvfs(folder or "/")
    except OSError:
        return None
    free = facts.f_bavail * facts.f_frsize
    if free >= LITTLE_FREE:
        return None
    fix = "make room: `docker system df` shows what images and volumes take"
    evidence = f"{free / MIB:.0f} MiB free for {folder}"
    return problem(evidence, fix) if free < LEAST_FREE else advice(evidence, fix)


def _age(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


@check(190, "port")
def port(machine: Machine) -> Finding:
    """Address of gpud: gpud serves it, or it is free; else the process that holds it."""
    http = machine.settings.http
    if http.port == 0:
        return ok("port 0: the kernel chooses one at each start")
    if machine.root is None:
        return _free(machine)
    health = machine.health("http")
    if health is None:  # it may listen before it says so
        evidence = f"{http.listen}: the agent has not said yet whether it listens there"
        return unknown(evidence, "ask again in a moment")
    if health.level == Level.OK:
        return ok(f"{machine.agent.url or http.url}, served by gpud's agent{_credentials(http)}")
    make = problem if health.level == Level.FAILED else advice
    evidence = health.detail or f"{http.listen} cannot be had"
    if health.reason == portholder.IN_USE:  # whoever asks may see more processes than the agent
        listener = portholder.listener_of(http.port, machine.at("/"))
        if listener != portholder.UNNAMED:
            evidence = portholder.taken_message(http.listen, listener)
    return make(evidence, health.fix or _another_port(http))


def _free(machine: Machine) -> Finding:
    http = machine.settings.http
    listener = portholder.listener_of(http.port, machine.at("/"))  # no connection is made
    if listener is None:
        return ok(f"{http.listen} is free")
    evidence = f"{http.listen} is held by {listener}, and gpud is not running"
    return problem(evidence, _another_port(http))


def _credentials(http: HttpSettings) -> str:
    required = ["a password"] if http.basic_auth_users else []
    if http.tls_server_config.client_auth_type == VERIFIED:
        required.append("a certificate")
    return f"; it asks for {' and '.join(required)}" if required else ""


def _another_port(http: HttpSettings) -> str:
    number = http.port + 1 & 0xFFFF or 9946
    return f'stop it, or choose another: [http] listen = "127.0.0.1:{number}"'
