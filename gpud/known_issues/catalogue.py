"""Known faults of GPU work in WSL2 and on Linux: one entry for each, read from ``catalogue.json``.

An entry is facts from public threads: which versions it was reported on, what a person sees, what
helps, and where it is written. To add one, edit the file; ``docs/known-issues.md`` is made of it.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import cache
from pathlib import Path

import msgspec

FILE = Path(__file__).with_name("catalogue.json")
VERSIONS = ("wsl_version", "kernel", "windows_build", "driver")
"""The facts of a machine that are versions; ``Applies`` has a ``Range`` for each."""


class IssueEffect(StrEnum):
    """What a person loses, from worst to none."""

    WINDOWS_BUGCHECK = "windows_bugcheck"
    HANG = "hang"
    CRASH = "crash"
    NO_GPU = "no_gpu"
    NO_NVML = "no_nvml"
    WRONG_RESULT = "wrong_result"
    SLOW = "slow"
    NONE = "none"


class Confidence(StrEnum):
    """How many people say so."""

    MAINTAINER = "maintainer_confirmed"
    SEVERAL = "several_reports"
    SINGLE = "one_report"


class ReportWhen(StrEnum):
    """What must be observed before gpud speaks of an entry."""

    BUILD = "build"
    BUILD_AND_SYMPTOM = "build+symptom"
    SYMPTOM = "symptom"


class TextOrigin(StrEnum):
    """Where a pattern is looked for."""

    KERNEL_LOG = "kernel_log"
    CUDA = "cuda"
    NVML = "nvml"


class Range(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Versions of one part: bounds where the evidence gives them, else those it was reported on.

    ``min`` and ``max`` are inclusive and may be shorter than a version: ``max`` "10.0.20231" holds
    every revision of that build. ``fixed`` is the first version without the fault.
    """

    min: str | None = None
    max: str | None = None
    fixed: str | None = None
    observed: tuple[str, ...] = ()

    @property
    def bounded(self) -> bool:
        """Whether the evidence says where the fault begins, ends or was fixed."""
        return any(bound is not None for bound in (self.min, self.max, self.fixed))


class Applies(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Machines that an entry is about. ``needs`` is a condition that gpud cannot read."""

    platform: str  # "wsl2", "linux", "windows" (also the one below WSL2) or "any"
    wsl_version: Range | None = None
    kernel: Range | None = None
    windows_build: Range | None = None
    driver: Range | None = None
    compute_capability: tuple[str, ...] = ()  # "12.0"; "5.x" is every 5
    needs: str | None = None


class Pattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text that the fault leaves: a regular expression, and where the text appears."""

    where: TextOrigin
    regex: str


class IssueSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A public page, and its newest evidence: a date ("2026-08-23") or the release it is about."""

    url: str
    date: str | None


class KnownIssue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One known fault. ``signs`` are what a person can see and gpud cannot.

    ``boot_grace_s``: for so long after a start of WSL2 the GPU must not be touched. ``leave_out``:
    modes of probes that set the fault off.
    """

    id: str
    title: str
    applies: Applies
    effect: IssueEffect
    confidence: Confidence
    report_when: ReportWhen
    sources: tuple[IssueSource, ...]
    workaround: str | None = None
    trigger: str | None = None
    fixed_in: str | None = None
    patterns: tuple[Pattern, ...] = ()
    signs: tuple[str, ...] = ()
    note: str | None = None
    boot_grace_s: float = 0.0
    leave_out: tuple[str, ...] = ()

    @property
    def newest(self) -> str:
        """The date of the newest evidence; empty if no source has one."""
        dates = (source.date or "" for source in self.sources)
        return max((date for date in dates if re.fullmatch(r"\d{4}-\d\d-\d\d", date)), default="")


@cache
def catalogue() -> tuple[KnownIssue, ...]:
    """Return all entries.

    The file is part of the program, as a module is: a test reads it whole, and nobody guards
    against a broken one. Errors: ``msgspec.DecodeError``, ``OSError``.
    """
    return msgspec.json.decode(FILE.read_bytes(), type=tuple[KnownIssue, ...])
