"""Whether gpud itself runs, and what it says of its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpud.doctor.finding import Finding, advice, combined, ok, problem, unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.core.report import RootReport
    from gpud.doctor.machine import Machine

TITLE = "gpud"
ORDER = 5
SUMMARY = "the supervisor and the agent run, and the parts no other check is about"
ELSEWHERE = frozenset(
    {"alerts", "containers", "cuda", "dockerd", "http", "nvml", "settings", "store"}
)
"""Components with a check of their own."""
OK, FAILED = 0, 2


def look(machine: Machine) -> Finding:
    """Take root's word for the processes and the agent's for its parts."""
    if machine.root is None:
        start = "sudo gpud up" if machine.installed else "deploy/run"
        if machine.installed and machine.exists(f"{machine.settings.run_dir}/stopped"):
            return advice("stopped with gpud down; opened shells do not start it", start)
        return advice(machine.root_silence or "gpud is not running", start)
    return combined(processes(machine.root, machine.settings.log_dir), *parts(machine.agent))


def processes(report: RootReport, log_dir: str) -> Finding:
    """Judge the supervisor and the agent as its parent sees it."""
    agent = report.agent
    if agent.state != "running":
        words = agent.detail or "no word why"
        return problem(
            f"the agent is {agent.state}: {words}", agent.fix or f"{log_dir}/agent.log says more"
        )
    rights = "" if report.privileged else ", without root: dockerd is watched, not kept"
    return ok(f"{report.gpud_version} runs, process {report.process.pid}{rights}")


def parts(document: Mapping[str, Any]) -> list[Finding]:
    """Judge what no other check is about; figures that fail are not the machine's fault alone."""
    healths = document.get("health")
    if not isinstance(healths, dict):
        return [unknown("the agent has written no status yet", "ask again in a moment")]
    found = []
    for name, health in sorted(healths.items()):
        if name in ELSEWHERE or not isinstance(health, dict) or health.get("level") == OK:
            continue
        words = f"{name}: {health.get('detail') or health.get('reason')}"
        make = problem if health.get("level") == FAILED else advice
        found.append(make(words, str(health.get("fix") or "gpud status says more")))
    return found
