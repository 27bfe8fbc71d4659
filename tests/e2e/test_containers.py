"""A GPU that computes and a container that may not: the whole program tells which is at fault.

The GPU is the stand-in driver, dockerd is real; what the container prints bears the GPU's name.
"""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.program import Program, cuda, program
from tests.root.sample import PRINTED, gpu_docker, usable

if TYPE_CHECKING:
    from tests.root.sample import GpuDocker

pytestmark = pytest.mark.skipif(not usable(), reason="needs root, dockerd and busybox-static")

GPU = "NVIDIA GeForce RTX 4070 (stand-in)"
ON_THAT_GPU = PRINTED.replace("NVIDIA RTX A2000 Laptop GPU", GPU)
LABELS = {"gpu": "0", "probe": "container_nbody", "mode": "nbody"}


def start(gpud: Program, gpu: GpuDocker, image: str, **settings: dict[str, Any]) -> None:
    gpud.settings = {
        "dockerd": {**gpu.dockerd.settings(policy="observe"), "args": []},
        "containers": {"image": image, "first_after_s": 0.0},
        **settings,
    }
    gpud.start()


def test_the_containers_figure_is_published_compared_and_kept() -> None:
    with gpu_docker("exit 0") as gpu, program() as gpud:
        image = gpu.printing(ON_THAT_GPU)
        gpu.process.send_signal(signal.SIGSTOP)  # a run before the GPUs are known has none
        start(gpud, gpu, image, cuda=cuda(gpud.home))
        gpud.status_when(lambda d: (d["cuda"] or {}).get("devices"), "the GPUs")
        gpu.process.send_signal(signal.SIGCONT)
        document = gpud.status_when(
            lambda d: (d["containers"] or {}).get("ratio") is not None, "the comparison", 40
        )
        metrics = gpud.metrics()
        gpud.stop()
        with closing(sqlite3.connect(gpud.home / "var/lib/gpud/gpud.db")) as database:
            kept = database.execute(
                "SELECT gpu_uuid, median FROM runs JOIN samples ON run_id = id"
                " WHERE probe = 'container_nbody'"
            ).fetchall()
    published = {
        name: {labels: value for (n, labels), value in metrics.items() if n == name}
        for name in ("gpud_probe_flops_per_second", "gpud_container_flops_ratio")
    }
    assert published["gpud_probe_flops_per_second"][tuple(sorted(LABELS.items()))] == 3.863604e12
    inside = published["gpud_probe_flops_per_second"][
        tuple(sorted({**LABELS, "probe": "nbody"}.items()))
    ]
    ratio = published["gpud_container_flops_ratio"][("gpu", "0"),]
    assert ratio == pytest.approx(3.863604e12 / inside)
    assert document["containers"]["verdict"] == "agrees"
    assert document["health"]["containers"]["level"] == 0
    (device,) = document["cuda"]["devices"]
    assert kept == [(device["uuid"], 3.863604e12)]


def test_missing_toolkit_is_distinguished_from_a_failing_driver() -> None:
    with gpu_docker(None) as gpu, program() as gpud:
        start(gpud, gpu, gpu.printing(ON_THAT_GPU), cuda=cuda(gpud.home))
        document = gpud.status_when(
            lambda d: (d["containers"] or {}).get("verdict") == "only_container_fails",
            "the verdict",
            90,
        )
        counted = gpud.value(
            "gpud_probe_failures_total", probe="container_nbody", reason="toolkit_missing"
        )
        console = gpud.console()
    health = document["health"]["containers"]
    assert (health["level"], health["reason"]) == (2, "toolkit_missing")
    assert 'could not select device driver "" with capabilities: [[gpu]]' in health["detail"]
    assert "nvidia-container-toolkit" in health["fix"]
    assert counted == 1
    assert "Traceback" not in console


def test_without_any_gpu_and_without_the_toolkit_dockers_error_stands_beside_the_drivers() -> None:
    with gpu_docker(None) as gpu, program() as gpud:
        start(gpud, gpu, gpu.printing(ON_THAT_GPU))
        document = gpud.status_when(
            lambda d: (d["containers"] or {}).get("verdict") == "both_fail", "the verdict", 40
        )
    assert document["health"]["containers"]["reason"] == "toolkit_missing"
    assert document["health"]["containers"]["level"] == 1
    assert document["health"]["cuda"]["level"] == 2


def test_absent_image_is_a_counted_skip_and_no_problem() -> None:
    with gpu_docker(None) as gpu, program() as gpud:
        start(gpud, gpu, "127.0.0.1:1/nobody/has:this", cuda=cuda(gpud.home))
        document = gpud.status_when(
            lambda d: (
                d["counters"]["skips"].get("container_nbody:image_absent")
                and "containers" in d["health"]
            ),
            "the skip and the health",
            40,
        )
    assert document["root"]["containers"]["run"] is None
    assert not [name for name in document["counters"]["failures"] if name.startswith("container")]
    assert document["health"]["containers"]["level"] == 0
    assert "not installed" in document["health"]["containers"]["detail"]
