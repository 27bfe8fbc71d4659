"""What a running agent has loaded: memory that nothing needs is memory of the person's games."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.e2e.program import free_port
from tests.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from pathlib import Path

NEVER = {"docker", "numpy", "pygments", "pynvml", "requests", "rich"}


def test_a_running_agent_has_loaded_no_library_that_it_never_uses(tmp_path: Path) -> None:
    said = tmp_path / "imports"
    with said.open("wb") as imports:
        agent = subprocess.Popen(
            [sys.executable, "-I", "-X", "importtime", "-m", "gpud.agent", "--home", tmp_path],
            stderr=imports,
            cwd="/",
            env={
                "PATH": os.environ["PATH"],
                "GPUD_CUDA__LIBRARY": "/nonexistent/libcuda.so.1",
                "GPUD_NVML__LIBRARY": "/nonexistent/libnvidia-ml.so.1",
                "GPUD_HTTP__LISTEN": f"127.0.0.1:{free_port()}",
            },
        )
    try:
        until((tmp_path / "run/gpud/agent/agent.json").exists, "the agent runs")
    finally:
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(timeout=LIMIT_S) == 0
    names = re.findall(r"^import time:.*\| +(\S+)", said.read_text(), re.MULTILINE)
    packages = {name.partition(".")[0] for name in names if "." in name}  # one refused has no parts
    assert {"apscheduler", "starlette", "structlog", "uvicorn"} <= packages
    assert not NEVER & packages
