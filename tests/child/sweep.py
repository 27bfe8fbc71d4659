"""Many runs of the real child against the stand-in, each with a fault of its own."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpud import discovery
from gpud.child import probes
from gpud.child.cuda_api import FUNCTIONS, GRAPH, OPTIONAL
from gpud.core.sample import Backend, Pace
from tests.child.running import Ended, gpus_of
from tests.standins.build import build_libcuda, rewrite_script

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SERVER = Path(__file__).with_name("fork_server.py")
INVENTORY = "inventory"
A_SMALL_GPU = """\
device.0.free_mem 67108864
device.1.free_mem 67108864
host_copy_bytes_per_second 1e8
flops_per_second 1e11
bytes_per_second 1e10
"""
"""On which a large probe sizes itself down to next to nothing: what counts here are its calls."""
WORDS = frozenset({"cuGetErrorName", "cuGetErrorString"})
"""Called only once something has failed."""
LACKING = tuple(name for name in OPTIONAL if name not in GRAPH)
"""What a driver of CUDA 11.4 does not have."""
CALLED = sorted({*FUNCTIONS, *OPTIONAL} - WORDS)
SHARED = {"cuModuleUnload", "cuDevicePrimaryCtxRelease_v2"}
"""Given back after the last document: what hangs or fails there costs no run."""


@dataclass(frozen=True, slots=True)
class Run:
    """How one run ended, and every driver function it called, in order."""

    ended: Ended
    calls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Subject:
    """What is run: a probe or "inventory"; on an older driver, which lacks what it may lack."""

    name: str
    older: bool = False

    def __str__(self) -> str:
        return f"{self.name} on an older driver" if self.older else self.name


@dataclass(frozen=True, slots=True)
class Fault:
    """A function that fails with ``code`` once it was called ``after`` times."""

    function: str
    code: int
    after: int
    subject: Subject
    sticky: bool = False  # and with it every function, from that moment on

    def __str__(self) -> str:
        lasting = " for good" if self.sticky else ""
        return f"{self.function} = {self.code} at call {self.after}{lasting} of {self.subject}"


class Sweep:
    """The fork server, the library that every case gets a link to, and a clean run of each probe.

    Made by ``sweeping``.
    """

    def __init__(self, folder: Path, server: subprocess.Popen[str]) -> None:
        self._folder = folder
        self._server = server
        self._libraries = {
            False: build_libcuda(folder / "newer"),
            True: build_libcuda(folder / "older", without=LACKING),
        }
        self._numbers = itertools.count()
        usable, _ = discovery.modules(probes, ("SPEC", "run"))
        specs = [m.SPEC for m in usable.values() if m.SPEC.backend is Backend.CUDA]
        small = [INVENTORY, *(spec.name for spec in specs if spec.pace is Pace.SMALL)]
        large = [spec.name for spec in specs if spec.pace is Pace.LARGE]
        subjects = [Subject(name) for name in (*small, *large)]
        subjects += [Subject(name, older=True) for name in small]
        self.clean = {subject: self._clean_run(subject) for subject in subjects}

    def library(self, subject: Subject) -> Path:
        """Give the driver that a subject is run on, unscripted."""
        return self._libraries[subject.older]

    def prober(self, function: str) -> Subject:
        """The probe of the fewest calls that has a function, on a current driver where one does."""
        able = [subject for subject, run in self.clean.items() if function in run.calls]
        assert able, f"nothing calls {function}"
        return min(able, key=lambda s: (s.older, s.name == INVENTORY, len(self.clean[s].calls)))

    def faults(self, function: str, codes: Iterable[int], *, sticky: bool = False) -> list[Fault]:
        """Each code at the first call of a function, one in the middle, and the last."""
        subject = self.prober(function)
        count = self.clean[subject].calls.count(function)
        places = sorted({0, count // 2, count - 1})
        return [Fault(function, code, at, subject, sticky) for code in codes for at in places]

    def run(self, faults: Sequence[Fault]) -> Iterator[tuple[Fault, Run]]:
        """Run every case, several at once, and give each with how it ended."""
        scripts = [(fault.subject, self._script(fault)) for fault in faults]
        return zip(faults, self._runs(scripts), strict=True)

    def _script(self, fault: Fault) -> str:
        own = f"fail {fault.function} {fault.code} {fault.after}\n"
        if not fault.sticky:
            return own
        calls = self.clean[fault.subject].calls
        places = [at for at, name in enumerate(calls) if name == fault.function]
        before = calls[: places[fault.after]]
        lacking = LACKING if fault.subject.older else ()
        others = [f for f in CALLED if f != fault.function and f not in lacking]
        return own + "".join(f"fail {f} {fault.code} {before.count(f)}\n" for f in others)

    def _clean_run(self, subject: Subject) -> Run:
        (run,) = self._runs([(subject, "")])
        assert run.ended.code == 0, (subject, run.ended)
        return run

    def _runs(self, subjects: Sequence[tuple[Subject, str]]) -> list[Run]:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        places: dict[str, Path] = {}
        cases = []
        for subject, script in subjects:
            name = str(next(self._numbers))
            place = places[name] = self._folder / name
            own = f"{devices(subject)}log {place}/calls\n{script}"
            library = linked(self.library(subject), place, own)
            listing = subject.name == INVENTORY
            target = {} if listing else {"probe": subject.name, **gpus_of(subject.name)}
            job = {"cuda_library": str(library), **target}
            cases.append({"id": name, "job": job})
        self._server.stdin.write(json.dumps(cases) + "\n")
        self._server.stdin.flush()
        ended: dict[str, Ended] = {}
        for _ in cases:
            report = json.loads(self._server.stdout.readline())
            ended[report["id"]] = Ended(report["code"], report["out"], report["err"])
        runs = [Run(ended[name], _calls(place)) for name, place in places.items()]
        for place in places.values():
            shutil.rmtree(place)
        return runs


def devices(subject: Subject) -> str:
    """Give the line of a script for as many GPUs as a probe works on."""
    return f"devices {len(gpus_of(subject.name))}\n"


def linked(library: Path, place: Path, script: str) -> Path:
    """Give a new folder a library and a script of its own; the bytes are shared."""
    place.mkdir()
    own = place / library.name
    own.hardlink_to(library)
    rewrite_script(own, A_SMALL_GPU + script)
    return own


def _calls(place: Path) -> tuple[str, ...]:
    with contextlib.suppress(FileNotFoundError):  # not one call was made
        return tuple((place / "calls").read_text().split())
    return ()


@contextlib.contextmanager
def sweeping(folder: Path) -> Iterator[Sweep]:
    """Start the server, and end it."""
    server = subprocess.Popen(
        [sys.executable, "-I", str(SERVER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with server:
        yield Sweep(folder, server)
        assert server.stdin is not None
        server.stdin.close()
        assert server.wait(30) == 0
