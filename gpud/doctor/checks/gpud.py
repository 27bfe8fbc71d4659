"""Check of gpud itself: whether it runs, and the parts that no other check is about."""

from __future__ import annotations

from collections.abc import Iterator

from gpud.core.health import Level
from gpud.core.report import RootReport
from gpud.doctor.finding import Finding, advice, combined, ok, problem, unknown
from gpud.doctor.machine import Machine

TITLE = "gpud"
ORDER = 5
SUMMARY = "the supervisor and the agent run, and the parts no other check is about"
ELSEWHERE = {"alerts", "containers", "cuda", "dockerd", "http", "nvml", "settings", "store"}
"""Components with a check of their own."""


def look(machine: Machine) -> Finding:
    """Take root's report of the processes and the agent's of its parts."""
    if machine.root is None:
        start = "sudo gpud up" if machine.installed else "deploy/run"
        if machine.installed and machine.exists(f"{machine.settings.run_dir}/stopped"):
            return advice("stopped with gpud down; opened shells do not start it", start)
        return advice(machine.root_silence or "gpud is not running", start)
    return combined(_processes(machine.root, machine.settings.log_dir), *_parts(machine))


def _processes(report: RootReport, log_dir: str) -> Finding:
    agent = report.agent
    if agent.state != "running":
        fix = agent.fix or f"{log_dir}/agent.log says more"
        return problem(f"the agent is {agent.state}: {agent.detail or 'no word why'}", fix)
    rights = "" if report.privileged else ", without root: dockerd is watched, not kept"
    return ok(f"{report.gpud_version} runs, process {report.process.pid}{rights}")


def _parts(machine: Machine) -> Iterator[Finding]:
    if not machine.agent.health:
        yield unknown("the agent has written no status yet", "ask again in a moment")
    for name, health in sorted(machine.agent.health.items()):
        if name not in ELSEWHERE and health.level is not Level.OK:
            make = problem if health.level is Level.FAILED else advice
            evidence = f"{name}: {health.detail or health.reason}"
            yield make(evidence, health.fix or "gpud status says more")
