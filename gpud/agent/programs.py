"""Programs that may lie on a drive of Windows, started without touching the drive.

``/usr/lib/wsl`` and ``/mnt/c`` come over 9p, and a server that hangs keeps whoever opens, lists or
executes there in a sleep that no signal ends; ``Popen`` itself waits for the exec of its child. So
a shell, which lies on the distribution's own disk, looks for the program and becomes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.agent import children, processes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpud.core.report import ProcessRef

SHELL = "/bin/sh"
_FIND = 'for path; do [ -f "$path" ] && [ -x "$path" ] && printf %s "$path" && exit; done; exit 1'
_BECOME = 'cd "${1%/*}" && exec "$@" || exit 126'
"""Windows knows no folder of Linux: a program of its is started in its own one."""

CANNOT_EXECUTE, NOT_THERE = 126, 127
"""What a shell ends with that cannot become a program."""


async def find(
    paths: Sequence[str],
    *,
    deadline_s: float,
    grace_s: float = children.GRACE_S,
    started: Callable[[ProcessRef], None] = lambda _: None,
) -> tuple[str | None, children.Ended]:
    """Give the first of the absolute ``paths`` that is a program, None where there is none.

    Errors: ``OSError`` when the shell cannot be started. Whoever calls looks at how it ended: a
    search that was killed has found nothing out.
    """
    ended = await children.run(
        [SHELL, "-c", _FIND, SHELL, *paths],
        b"",
        deadline_s=deadline_s,
        grace_s=grace_s,
        started=started,
    )
    found = ended.stdout.decode(errors="surrogateescape") if ended.code == 0 else ""
    return (found or None), ended


async def run(  # noqa: PLR0913  # each is one thing a caller chooses
    command: Sequence[str],
    *,
    deadline_s: float,
    grace_s: float = children.GRACE_S,
    started: Callable[[ProcessRef], None] = lambda _: None,
    environment: Mapping[str, str] = children.ENVIRONMENT,
    stdin: bytes = b"",
) -> children.Ended:
    """Run a program by its absolute path; one that says more than a MiB is killed then.

    Errors: ``OSError`` when the shell cannot be started; a program that cannot be is an exit code,
    ``CANNOT_EXECUTE`` or ``NOT_THERE``.
    """
    return await children.run(
        [SHELL, "-c", _BECOME, SHELL, *command],
        stdin,
        deadline_s=deadline_s,
        grace_s=grace_s,
        started=started,
        environment=environment,
        end_talkative=True,
    )


class Left:
    """A program that was killed and stayed, in the kernel or with Windows: the next one waits."""

    def __init__(self) -> None:
        self._last: ProcessRef | None = None
        self._stays = False

    def began(self, process: ProcessRef) -> None:
        """Remember who runs; to be given as ``started``."""
        self._last = process

    def ended(self, ended: children.Ended) -> None:
        """Remember whether it went."""
        self._stays = ended.code is None

    def condition(self) -> str | None:
        """Tell what keeps the one that stayed; None when there is none, or it has gone since."""
        if not self._stays or self._last is None:
            return None
        return processes.condition(self._last)
