"""Checks of gpud itself: supervisor and agent, settings, and who may ask it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gpud import settings_files
from gpud.core.errors import ConfigError
from gpud.core.health import Level
from gpud.core.report import RootReport
from gpud.core.settings import GROUP, config_path
from gpud.doctor.finding import Finding, advice, check, combined, ok, passed_on, problem, unknown
from gpud.doctor.machine import Machine
from gpud.reports import NOT_RUNNING
from gpud.words import next_on_battery, unmeasured

ELSEWHERE = {"containers", "cuda", "dockerd", "nvml", "settings"}
"""Components with a check of their own."""
BROKEN = "mend that line; `gpud config check` reads the file again, `sudo gpud restart` uses it"


@check(5, "gpud")
def gpud(machine: Machine) -> Finding:
    """Supervisor, agent, and parts without a check."""
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
            evidence = f"{name}: {health.detail or health.reason}"
            yield passed_on(health, evidence, "gpud status says more")


@check(7, "settings")
def settings(machine: Machine) -> Finding:
    """Files are readable, keys known, secrets hidden."""
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
    """Group that may ask gpud: history, alerts, probe, logs."""
    person = machine.person
    if not machine.installed:
        return ok("a development run serves its own user")
    if person.uid == 0:
        return ok("root may ask")
    group = machine.account("/etc/group", GROUP)
    if group is None:
        return problem(f"there is no group {GROUP}", f"run {machine.installer} again")
    user = machine.account("/etc/passwd", person.name)
    if person.name in group[-1].split(",") or (user is not None and user[3] == group[2]):
        return ok(f"you are in the group {GROUP}")
    fix = f"sudo usermod -aG {GROUP} {person.name} (works at once in shells that are open)"
    return advice(f"you are not in the group {GROUP}", fix)
