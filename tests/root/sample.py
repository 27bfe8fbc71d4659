"""Images that behave like NVIDIA's sample, or do not, for a private dockerd; and its GPU driver."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.dockerd import PrivateDockerd, private_dockerd
from tests.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator

HOOK = "nvidia-container-runtime-hook"
"""dockerd offers GPUs when this is on its PATH; a stand-in that does nothing is enough for that."""

PRINTED = """\
Run "nbody -benchmark [-numbodies=<numBodies>]" to measure performance.
NOTE: The CUDA Samples are not meant for performance measurements. Results may vary when GPU Boost \
is enabled.

> Windowed mode
> Simulation data stored in video memory
> Single precision floating point simulation
> 1 Devices used for simulation
GPU Device 0: "Ampere" with compute capability 8.6

> Compute 8.6 CUDA device: [NVIDIA RTX A2000 Laptop GPU]
20480 bodies, total time for 10 iterations: 21.712 ms
= 193.180 billion interactions per second
= 3863.604 single-precision GFLOP/s at 20 flops per interaction
"""
"""What the sample printed on a laptop (CUDA 11.7 image), its list of options left out."""


@dataclass
class GpuDocker:
    """A running private dockerd; ``image`` makes what it may run."""

    dockerd: PrivateDockerd
    process: subprocess.Popen[bytes]
    images: dict[str, str] = field(default_factory=dict)

    def image(self, script: str) -> str:
        """Import busybox and a shell script by the name of the sample; gives the image's name."""
        if script not in self.images:
            name = f"sample:{len(self.images)}"
            archive = io.BytesIO()
            with tarfile.open(fileobj=archive, mode="w") as tar:
                for place in ("bin", "usr", "usr/bin"):  # nobody must be able to pass through
                    directory = tarfile.TarInfo(place)
                    directory.type, directory.mode = tarfile.DIRTYPE, 0o755
                    tar.addfile(directory)
                tar.add("/bin/busybox", arcname="bin/sh")
                text = f"#!/bin/sh\n{script}\n".encode()
                program = tarfile.TarInfo("usr/bin/nbody")
                program.size, program.mode = len(text), 0o755
                tar.addfile(program, io.BytesIO(text))
            with contextlib.closing(self.dockerd.client()) as client:
                client.import_image_from_data(archive.getvalue(), repository="sample", tag=name[7:])
            self.images[script] = name
        return self.images[script]

    def printing(self, text: str) -> str:
        return self.image(f"cat <<'END'\n{text}END")


@contextlib.contextmanager
def gpu_docker(hook: str | None) -> Iterator[GpuDocker]:
    """Start a dockerd; ``hook`` is the shell script in place of NVIDIA's, None for no toolkit."""
    with private_dockerd() as made:
        programs = made.root / "bin"
        programs.mkdir()
        if hook is not None:
            (programs / HOOK).write_text(f"#!/bin/sh\n{hook}\n")
            (programs / HOOK).chmod(0o755)
        with (made.root / "log").open("wb") as log:
            process = subprocess.Popen(
                made.argv(),
                stdout=log,
                stderr=log,
                env={"PATH": f"{programs}:{os.environ['PATH']}", "HOME": "/root"},
            )
        try:
            until(made.answers, "an answer of dockerd")
            yield GpuDocker(made, process)
        finally:
            process.terminate()
            process.wait(LIMIT_S)


def usable() -> bool:
    return (
        os.geteuid() == 0 and shutil.which("dockerd") is not None and Path("/bin/busybox").exists()
    )
