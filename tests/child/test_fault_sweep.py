"""Every error code of cuda.h at every call: no crash, no number, and a reason with a name."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpud.child.cuda_errors import INIT_FUNCTIONS, MEANING
from gpud.core.sample import Reason
from tests.child.sweep import CALLED, INVENTORY, SHARED, Fault, Run, Subject, Sweep, sweeping

if TYPE_CHECKING:
    from collections.abc import Iterator

STANDIN = Path(__file__).resolve().parents[1] / "standins/cuda_errors.def"
LISTED = re.compile(r"ERROR\((\d+), (CUDA_ERROR_\w+),")
EXPECTED = {
    2: Reason.OUT_OF_MEMORY,
    214: Reason.ECC_ERROR,
    702: Reason.LAUNCH_TIMEOUT,
    719: Reason.LAUNCH_FAILED,
    803: Reason.DRIVER_MISMATCH,
    999: Reason.CUDA_ERROR,
}
"""One code of each way in which a call may fail."""
STICKY = (214, 700, 702, 719, 999)
"""Errors after which every call in the process fails."""
GIVES_BACK = re.compile(r"Destroy|Free|Unload|Release")
REPLACEABLE = {"cuMemHostAlloc"}  # ordinary memory does as well
LABELS = {
    *("cuDriverGetVersion", "cuMemGetInfo_v2", "cuModuleGetLoadingMode"),
    *("cuFuncGetAttribute", "cuModuleGetGlobal_v2"),
}
ATTRIBUTES = 5
"""What nothing depends on, the last attribute of each GPU among it: a refusal costs only itself."""
NOT_GIVEN_BACK = "not given back: "
LAST_TO_FAIL = "cuCtxSynchronize"
"""Cleaning up begins with the last of these; what fails from there on costs no figure."""


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweep]:
    with sweeping(tmp_path_factory.mktemp("sweep")) as made:
        yield made


def failed_at(fault: Fault, run: Run) -> int | None:
    """Where in the list of calls the fault struck; None where it was never reached."""
    places = [at for at, name in enumerate(run.calls) if name == fault.function]
    return places[fault.after] if fault.after < len(places) else None


def cleaning_from(run: Run) -> int:
    calls = run.calls
    ends = [at for at, name in enumerate(calls) if name == LAST_TO_FAIL]
    return ends[-1] if ends else len(calls)


def complaint(fault: Fault, run: Run, reason: Reason) -> str | None:
    """What is wrong with how a run ended; None when nothing is."""
    ended = run.ended
    strange = [line for line in ended.err.splitlines() if not line.startswith(NOT_GIVEN_BACK)]
    if ended.code not in {0, 1} or strange:
        return f"ended with {ended.code}: {ended.err[-300:]}"
    if fault.function in SHARED and fault.function not in ended.err:
        return f"nothing of it: {ended.err}"
    document = ended.document
    failure, figures = document["failure"], document.get("samples") or document.get("devices", [])
    at = failed_at(fault, run)
    if at is None or (fault.subject.name != INVENTORY and at >= cleaning_from(run)):
        return None if failure is None and figures else f"no figures: {failure}"
    # A mode that this driver does not offer is an answer: the run may go on.
    an_answer = reason is Reason.UNSUPPORTED
    if failure is None:
        report = [m for m in document.get("missing", ()) if fault.function in m["detail"]]
        missing = bool(report) and all(m["reason"] == reason for m in report)
        replaceable = fault.function in REPLACEABLE or GIVES_BACK.search(fault.function)
        mps = fault.function == "cuDeviceGetAttribute" and (fault.after + 1) % ATTRIBUTES == 0
        label = fault.function in LABELS or mps
        spared = replaceable or missing or label
        return None if spared and figures else "figures, as if nothing had happened"
    first = (fault.function, fault.code, reason)
    observed = (failure["function"], failure["code"], failure["reason"])
    named = failure["detail"].startswith(f"{failure['function']}: ") and not figures
    return (
        None if named and (observed == first or an_answer) else f"{observed}, {failure['detail']}"
    )


def reason_of(fault: Fault) -> Reason:
    reason = MEANING[fault.code][0]
    unexplained = reason in {Reason.CUDA_ERROR, Reason.INVALID_CALL}
    return Reason.INIT_FAILED if unexplained and fault.function in INIT_FUNCTIONS else reason


def complaints(sweep: Sweep, faults: list[Fault]) -> list[str]:
    return [
        f"{fault}: {wrong}"
        for fault, run in sweep.run(faults)
        if (wrong := complaint(fault, run, reason_of(fault)))
    ]


def test_the_table_has_every_code_of_the_header_and_the_words_agree(sweep: Sweep) -> None:
    listed = {int(code): name for code, name in LISTED.findall(STANDIN.read_text())}
    assert set(MEANING) == {*listed, 35}  # 35: given, and in no header
    faults = [Fault("cuInit", code, 0, Subject(INVENTORY)) for code in sorted(listed)]
    for fault, run in sweep.run(faults):
        assert f"{listed[fault.code]} ({fault.code})" in run.ended.document["failure"]["detail"]


def test_every_code_has_a_reason_with_a_name() -> None:
    unexplained = {code for code, (reason, _) in MEANING.items() if reason is Reason.CUDA_ERROR}
    assert unexplained == {999}
    assert {code: MEANING[code][0] for code in EXPECTED} == EXPECTED


@pytest.mark.parametrize(
    ("function", "code"), list(zip(CALLED, itertools.cycle(EXPECTED), strict=False))
)
def test_a_function_that_fails_anywhere_is_named_with_its_reason(
    sweep: Sweep, function: str, code: int
) -> None:
    assert complaints(sweep, sweep.faults(function, [code])) == []


def test_every_code_at_the_call_that_notices_most(sweep: Sweep) -> None:
    everywhere = sweep.faults("cuStreamSynchronize", sorted(MEANING))
    assert complaints(sweep, [fault for fault in everywhere if fault.after == 0]) == []


def test_a_code_that_no_header_lists_is_told_as_it_is(sweep: Sweep) -> None:
    launch = Subject("launch")
    faults = [Fault(function, 12345, 0, launch) for function in ("cuInit", "cuMemAlloc_v2")]
    (_, at_init), (_, later) = sweep.run(faults)
    assert at_init.ended.failure["reason"] == Reason.INIT_FAILED
    assert later.ended.failure["reason"] == Reason.CUDA_ERROR
    assert "(12345)" in later.ended.failure["detail"]


def test_after_an_error_that_stays_everything_fails_and_the_first_is_told(sweep: Sweep) -> None:
    faults = sweep.faults("cuLaunchKernel", STICKY, sticky=True)
    faults += sweep.faults("cuStreamSynchronize", STICKY, sticky=True)
    faults += sweep.faults("cuMemcpyDtoH_v2", STICKY, sticky=True)
    assert complaints(sweep, faults) == []


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("sticky", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("function", CALLED)
def test_every_code_at_every_function(sweep: Sweep, function: str, *, sticky: bool) -> None:
    faults = sweep.faults(function, sorted(MEANING), sticky=sticky)
    assert complaints(sweep, faults) == []
