"""The agent and everything that it starts have no way to more privileges, and work without."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.program import children_of, cuda, nvml, only, program
from tests.waiting import until

NO_CAPABILITY = f"{0:016x}"


def confinement(pid: int) -> dict[str, str]:
    """Give the command of a process, and what its status says of privileges."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    kept = {name: status[name] for name in ("NoNewPrivs", "CapBnd", "CapPrm", "CapInh", "CapAmb")}
    return kept | {"Uid": status["Uid"].split()[0]}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give capabilities up for good")
def test_running_agent_and_its_children_have_no_way_to_more_privileges() -> None:
    with program(agent={"user": "nobody"}, probes=only("launch")) as gpud:
        gpud.settings["cuda"], gpud.settings["nvml"] = cuda(gpud.home), nvml(gpud.home)
        gpud.start()
        seen: dict[str, dict[str, str]] = {}

        def looked() -> bool:
            agent = gpud.agent_pid()
            for pid in [agent, *children_of(agent)] if agent else []:
                try:
                    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                    module = words[words.index(b"-m") + 1].decode()
                    seen[module] = confinement(pid)
                except (OSError, ValueError):
                    continue  # it has ended, or is not itself yet
            return {"gpud.agent", "gpud.child", "gpud.agent.telemetry.nvml"} <= set(seen)

        until(looked, "the agent, a probe and the helper of NVML")
        seen.pop("gpud.root.drop", None)  # root, still on its way down
        confined = {"NoNewPrivs": "1", "Uid": "65534"} | dict.fromkeys(
            ("CapBnd", "CapPrm", "CapInh", "CapAmb"), NO_CAPABILITY
        )
        assert seen == dict.fromkeys(seen, confined)
        gpud.more_runs("launch")
        gpud.health("cuda", 0)
        until(lambda: gpud.value("gpud_gpu_temperature_celsius", gpu="0"), "a reading of NVML's")
