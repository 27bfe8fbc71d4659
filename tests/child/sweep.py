"""Many runs of the real child against the stand-in, each with a fault of its own."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpud import discovery
from gpud.child import probes
from gpud.child.cuda_api import FUNCTIONS, OPTIONAL
from gpud.core.sample import Backend, Pace
from tests.child.running import GPU, Ended
from tests.standins.build import build_libcuda, rewrite_script

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SERVER = Path(__file__).with_name("fork_server.py")
WORDS = frozenset({"cuGetErrorName", "cuGetErrorString"})
"""Called only once something has failed."""
CALLED = sorted({*FUNCTIONS, *OPTIONAL} - WORDS)


@dataclass(frozen=True, slots=True)
class Run:
    """How one run ended, and every driver function it called, in order."""

    ended: Ended
    calls: tuple[str, ...]
    took_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Fault:
    """A function that fails with ``code`` once it was called ``after`` times."""

    function: str
    code: int
    after: int
    subject: str  # a probe, or "inventory"
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
        self.library = build_libcuda(folder / "original")
        self._numbers = itertools.count()
        usable, _ = discovery.modules(probes, ("SPEC", "run"))
        specs = [module.SPEC for module in usable.values()]
        subjects = [spec.name for spec in specs if spec.backend is Backend.CUDA]
        self._large = {spec.name for spec in specs if spec.pace is Pace.LARGE}
        self.clean = {name: self._one(name, "") for name in ("inventory", *subjects)}

    def prober(self, function: str) -> str | None:
        """The quickest probe that calls a function; None where none does."""
        able = [name for name, run in self.clean.items() if function in run.calls]
        able = [name for name in able if name != "inventory"] or able
        return min(able, key=lambda name: self.clean[name].took_s, default=None)

    def faults(
        self,
        function: str,
        codes: Iterable[int],
        *,
        later: Iterable[int] | None = None,
        sticky: bool = False,
    ) -> list[Fault]:
        """Each code at the first call of a function, one in the middle, and the last.

        ``later`` are the codes for the last two where a large probe has to run that far.
        """
        subject = self.prober(function)
        assert subject is not None, f"no probe calls {function}"
        count = self.clean[subject].calls.count(function)
        here = list(codes)
        there = here if later is None or subject not in self._large else list(later)
        places = sorted({0, count // 2, count - 1})
        return [
            Fault(function, code, at, subject, sticky)
            for at in places
            for code in (there if at else here)
        ]

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
        others = [f for f in CALLED if f != fault.function]
        return own + "".join(f"fail {f} {fault.code} {before.count(f)}\n" for f in others)

    def _one(self, subject: str, script: str) -> Run:
        begun = time.monotonic()
        (run,) = self._runs([(subject, script)])
        return Run(run.ended, run.calls, time.monotonic() - begun)

    def _runs(self, subjects: Sequence[tuple[str, str]]) -> list[Run]:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        places: dict[str, Path] = {}
        cases = []
        for subject, script in subjects:
            name = str(next(self._numbers))
            place = places[name] = self._folder / name
            place.mkdir()
            library = place / self.library.name
            library.hardlink_to(self.library)
            rewrite_script(library, f"log {place}/calls\n{script}")
            listing = subject == "inventory"
            whose = {} if listing else {"probe": subject, "gpu": GPU}
            job = {"cuda_library": str(library), **whose}
            cases.append({"id": name, "verb": "--inventory" if listing else "--run", "job": job})
        self._server.stdin.write(json.dumps(cases) + "\n")
        self._server.stdin.flush()
        ended: dict[str, Ended] = {}
        for _ in cases:
            told = json.loads(self._server.stdout.readline())
            ended[told["id"]] = Ended(told["code"], told["out"], told["err"])
        runs = [Run(ended[name], _calls(place)) for name, place in places.items()]
        for place in places.values():
            shutil.rmtree(place)
        return runs


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
