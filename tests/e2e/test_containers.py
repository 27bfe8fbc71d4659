"""A GPU that computes and a container that may not: the whole program tells which is at fault.

The GPU is the stand-in driver, dockerd is real; what the container prints bears the GPU's name.
"""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing

import pytest

from tests.e2e.program import cuda, only, program
from tests.root.sample import PRINTED, gpu_docker, usable
from tests.waiting import until

pytestmark = pytest.mark.skipif(not usable(), reason="needs root, dockerd and busybox-static")

GPU = "NVIDIA GeForce RTX 4070 (stand-in)"
ON_THAT_GPU = PRINTED.replace("NVIDIA RTX A2000 Laptop GPU", GPU)
LABELS = {"gpu": "0", "probe": "container_nbody", "mode": "nbody"}
STORED = (
    "SELECT gpu_uuid, median FROM runs JOIN samples ON run_id = id WHERE probe = 'container_nbody'"
)


def test_the_containers_figure_is_published_compared_and_kept() -> None:
    with gpu_docker("exit 0") as gpu, program() as gpud:
        image = gpu.printing(ON_THAT_GPU)
        gpu.process.send_signal(signal.SIGSTOP)  # a run before the GPUs are known has none
        gpud.settings = {
            "dockerd": {**gpu.dockerd.settings(policy="observe", ping_interval_s=0.1), "args": []},
            "containers": {"image": image, "first_after_s": 0.0},
            "cuda": cuda(gpud.home),
            "probes": only("nbody"),
        }
        gpud.start()
        gpud.status_when(lambda d: (d["cuda"] or {}).get("devices"), "the GPUs")
        gpu.process.send_signal(signal.SIGCONT)
        document = gpud.status_when(
            lambda d: (d["containers"] or {}).get("ratio") is not None, "the comparison"
        )
        metrics = gpud.metrics()
        with closing(sqlite3.connect(gpud.home / "var/lib/gpud/gpud.db")) as database:
            stored = until(lambda: database.execute(STORED).fetchall(), "the stored run")
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
    assert stored == [(device["uuid"], 3.863604e12)]
