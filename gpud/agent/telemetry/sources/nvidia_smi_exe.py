"""Windows' own nvidia-smi.exe, asked while NVML is silent: it does not go through WSL.

One start for each driver: a start leaks memory of the host on some versions of WSL. Each is noted
in a file before it happens, and the next agent keeps to it: none before its moment (ADR 15).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from gpud.agent import children
from gpud.agent.telemetry import answers, smi_output, windows
from gpud.core.errors import TelemetryError
from gpud.core.telemetry import LEVELS

if TYPE_CHECKING:
    from gpud.agent.telemetry.answers import Answer
    from gpud.agent.telemetry.collection import SourceContext
    from gpud.core.sample import Reading
    from gpud.core.settings import Settings

NAME = "nvidia_smi_exe"
STARTS_A_PROGRAM = True

REST_S: Final = 300.0
"""Between two starts, those of an earlier agent too, and after anything that prevents one."""
HOLDS_S: Final = 330.0
"""How long what it read is shown: there is no next answer."""
DEADLINE_S: Final = 10.0


def place(settings: Settings) -> str:
    """Return where it is: the configured path, or Windows' folder."""
    configured = settings.telemetry.nvidia_smi_exe
    return configured or windows.place(settings.sysroot, f"{windows.SYSTEM}/nvidia-smi.exe")


def create(context: SourceContext) -> NvidiaSmi:
    """Create the source."""
    return NvidiaSmi(context)


class NvidiaSmi:
    """Starts the program when it is due. Outside WSL only one that the settings name."""

    def __init__(self, context: SourceContext, *, deadline_s: float = DEADLINE_S) -> None:
        self._context = context
        self._deadline_s = deadline_s
        self._place = place(context.settings)
        self._path = context.own / f"{NAME}.json"
        self._retry_s = self._read_note()  # by the monotonic clock
        self._asked = False  # since gpud started, or the driver became another
        self._folder: str | None = None  # of the driver in Windows' store

    async def collect(self) -> Answer | None:
        """Start the program if no better source answers and this driver was not asked about."""
        begun = self._context.now()
        if not self._due(begun.mono_s):
            return None
        result: tuple[Reading, ...] | TelemetryError
        try:
            self._rest()
            result = await self._ask()
        except TelemetryError as error:
            result = error
        return self._context.answer(NAME, begun, result, holds_s=HOLDS_S)

    def _due(self, now_s: float) -> bool:
        telemetry = self._context.board.read().telemetry
        folder = answers.of_machine(telemetry, "driver_folder", now_s)
        if folder not in {None, self._folder}:
            self._asked, self._folder = self._asked and self._folder is None, folder
        level = LEVELS.index(NAME)
        better = any(a.level > level and a.reason is None for a in telemetry.answers.values())
        off = answers.of_machine(telemetry, "exposed", now_s) == "disabled"
        in_wsl = self._context.board.read().machine.platform.get("wsl")
        absent = not in_wsl and not self._context.settings.telemetry.nvidia_smi_exe
        resting = 0 < self._retry_s - now_s <= REST_S  # more: by the clock of an earlier boot
        return not (self._asked or better or off or absent or resting)

    async def _ask(self) -> tuple[Reading, ...]:
        """Start it and read its answer. ``Errors: TelemetryError``."""
        environment = windows.environment(self._context.settings.sysroot)
        self._context.board.count_process()
        try:
            ended = await children.run_program(
                self._place,
                smi_output.ARGUMENTS,
                deadline_s=self._deadline_s,
                environment=environment,
            )
        except OSError as error:
            words = f"{NAME}: {children.SHELL} cannot be started: {error.strerror}"
            raise TelemetryError(words, reason="spawn_failed") from error
        if ended.code == children.NOT_THERE and not ended.stdout:
            raise TelemetryError(f"{NAME}: no {self._place}", reason="absent")
        self._context.count_start(NAME)
        self._asked = True
        if ended.overflowed:
            words = f"{NAME}: more than {children.STDOUT_BYTES} bytes of output"
            raise smi_output.bad_output(words)
        if ended.killed or ended.code is None:
            words = f"{NAME}: {self._place} did not answer within {self._deadline_s:g} s"
            raise TelemetryError(words, reason="hung", fix=smi_output.FIXES["hung"])
        if ended.code != 0:
            raise smi_output.exit_error(ended, NAME)
        return smi_output.read_csv(ended.stdout, NAME)

    def _rest(self) -> None:
        """Note that the next start has to wait.

        Errors: ``TelemetryError`` where that cannot be written; then nothing may be started.
        """
        self._retry_s = self._context.now().mono_s + REST_S
        try:
            self._path.write_text(f"{self._retry_s}\n")
        except OSError as error:
            raise TelemetryError(
                f"starts cannot be limited: {self._path}: {error.strerror}",
                reason="unlimited",
                fix=f"let gpud's user write {self._path.parent}",
            ) from error

    def _read_note(self) -> float:
        """Read when the last agent would have started it again; a damaged note is none."""
        with contextlib.suppress(OSError, ValueError):
            return float(self._path.read_text())
        return 0.0
