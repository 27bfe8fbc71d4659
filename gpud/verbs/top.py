"""``gpud top``: the GPU from second to second, as the agent sends it, until q."""

from __future__ import annotations

import pwd
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

import msgspec
from textual.binding import Binding
from textual.screen import ModalScreen
from textual.widgets import OptionList

from gpud import client
from gpud.core.errors import GpudError
from gpud.core.text import pasteable
from gpud.document.status import read
from gpud.requests import (
    AckRequest,
    AlertLine,
    BeginLine,
    NotRunLine,
    ProbeRequest,
    RanLine,
    TopLine,
    TopRequest,
    WaitLine,
)
from gpud.show import top
from gpud.show.headline import unacknowledged
from gpud.show.top import Choices, Moment, Process, SecondsPast
from gpud.show.view import BAD, HEAD, QUIET, Span, line
from gpud.verbs import screen
from gpud.verbs.probe_outcome import ProbeOutcome
from gpud.verbs.screen import FullScreen

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from textual.app import ComposeResult

    from gpud.core.settings import Settings
    from gpud.place import Place
    from gpud.requests import AnswerLine, ApiRequest, GpuProcess
    from gpud.show.view import Line, View

T = TypeVar("T")
AGAIN_S: Final = 1.0
"""From the end of a connection to the next try."""
ALL: Final = "all probes"
OF_ROOT: Final = "container_nbody"
"""The probe that nobody runs by hand."""
COMMAND: Final = 200
"""Bytes of one that are read: a process may make it as long as it likes."""


def run(options: argparse.Namespace, place: Place) -> int:
    """Show it; 3 where no agent runs, 4 for who may not ask it."""
    screen.check("gpud status")
    settings = place.usable_settings()
    lines = client.ask_running(place, settings, TopRequest())
    first = next(lines)
    return screen.run(Top(place, settings, first, lines, options.color))


class Top(FullScreen):
    """The screen, and two threads: one follows the agent, one does what was asked for."""

    CSS = f"""{FullScreen.CSS}
    ChoiceScreen {{ align: center middle; background: ansi_default; }}
    ChoiceScreen OptionList {{ width: 30; height: auto; max-height: 80%; scrollbar-size: 0 0;
      border: none; background: ansi_default; color: ansi_default; }}
    """
    BINDINGS: ClassVar = [
        Binding("g", "gpu"),
        Binding("s", "sort"),
        Binding("z", "zoom"),
        Binding("a", "acknowledge"),
        Binding("p", "probe"),
    ]

    def __init__(
        self,
        place: Place,
        settings: Settings,
        first: AnswerLine,
        lines: Iterator[AnswerLine],
        colour: str,
    ) -> None:
        super().__init__(colour)
        self._place, self._settings = place, settings
        self._past, self._chosen = SecondsPast(), Choices()
        self._moment = self._taken(first)
        self._past.take(self._moment.document)
        self._lines = lines
        self._trouble: Line | None = None
        self._message: Line | None = None
        self._doing = False

    def on_mount(self) -> None:
        """Follow the agent."""
        super().on_mount()
        Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        """Take line after line, from one agent after the other; ends with the process."""
        while True:
            try:
                for sent in self._lines:
                    moment = self._taken(sent)
                    self.call_later(self._show, moment)
            except (GpudError, OSError) as error:
                self.call_later(self._show, error)
            time.sleep(AGAIN_S)
            self._lines = client.ask_running(self._place, self._settings, TopRequest())

    def _taken(self, sent: AnswerLine) -> Moment:
        """Read a line, and what this machine knows of its processes. Errors: ``GpudError``."""
        if not isinstance(sent, TopLine):
            raise GpudError("the agent answers something else", fix="gpud restart")
        document = read(msgspec.json.decode(sent.status))
        processes = {gpu: [_process(each) for each in of] for gpu, of in sent.processes.items()}
        return Moment(document, sent.pause, processes, sent.unknown_reason)

    def _show(self, news: Moment | Exception) -> None:
        """Draw the moment; the last one stays in sight below what is wrong now."""
        self._trouble = None
        if isinstance(news, Moment):
            self._moment = news
            self._past.take(news.document)
        else:
            self._trouble = self._worded(news)
        self.draw()

    def _worded(self, error: Exception) -> Line:
        fix = error.fix if isinstance(error, GpudError) else None
        advice = f"; {pasteable(fix, self._place.program)}" if fix else ""
        return line(Span(f"{error}{advice}", BAD))

    def drawn(self, view: View) -> list[Line]:
        """Draw the body."""
        return top.screen(self._moment, self._past, self._chosen, time.time(), view)

    def foot(self) -> list[Line]:
        """Draw what is wrong with the agent, what was asked for, and the keys."""
        keys = line(Span(top.KEYS, QUIET))
        return [each for each in (self._trouble, self._message, keys) if each is not None]

    def action_gpu(self) -> None:
        """Show another GPU."""
        here = top.numbers(self._moment.document)
        shown = self._chosen.shown(self._moment.document)
        if shown is not None:
            self._chosen.gpu = _after(here, shown)
        self.draw()

    def action_sort(self) -> None:
        """Sort the processes by something else."""
        self._chosen.sort = _after(tuple(top.SORTS), self._chosen.sort)
        self.draw()

    def action_zoom(self) -> None:
        """Draw another time in one column."""
        self._chosen.zoom = _after(top.ZOOMS, self._chosen.zoom)
        self.draw()

    def action_acknowledge(self) -> None:
        """Acknowledge the alert that stands first."""
        waiting = unacknowledged(self._moment.document)
        if not waiting:
            self._say("no alert waits for you")
        else:
            self._do(AckRequest(alert=waiting[0].fingerprint))

    def action_probe(self) -> None:
        """Let the person choose a probe, and run it on the GPU that is shown."""
        document = self._moment.document
        gpu = self._chosen.shown(document)
        uuids = tuple(uuid for uuid, listed in document.gpus.items() if listed.number == gpu)
        runs = [run for run in document.probes if run.probe != OF_ROOT]
        gpus = {run.probe: () if run.gpu is None else uuids for run in runs}

        def run(name: str | None) -> None:
            if name is not None:
                names = () if name == ALL else (name,)
                self._do(ProbeRequest(names=names, gpus=gpus.get(name, uuids)))

        self.push_screen(ChoiceScreen([*gpus, ALL]), run)

    def _do(self, request: ApiRequest) -> None:
        """Ask the agent for it, one thing at a time."""
        if self._doing:
            self._say("wait for the end of what you asked for before")
            return
        self._doing = True
        self._say("asked for it ...")
        Thread(target=self._ask, args=(request,), daemon=True).start()

    def _ask(self, request: ApiRequest) -> None:
        try:
            for sent in client.ask_running(self._place, self._settings, request):
                if (step := _step(sent)) is not None:
                    self.call_later(self._say, step)
        except (GpudError, OSError) as error:
            self.call_later(self._say, error)
        self._doing = False

    def _say(self, news: str | Exception) -> None:
        self._message = line(Span(news, HEAD)) if isinstance(news, str) else self._worded(news)
        self.draw()


class ChoiceScreen(ModalScreen[str | None]):
    """Names, of which one may be chosen; Escape chooses none."""

    BINDINGS: ClassVar = [Binding("escape,q", "dismiss(None)")]

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self._names = names

    def compose(self) -> ComposeResult:
        """Lay them out."""
        yield OptionList(*self._names, markup=False)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return the name."""
        self.dismiss(self._names[event.option_index])


def _after(names: Sequence[T], name: T) -> T:
    return names[(names.index(name) + 1) % len(names)]


def _step(sent: AnswerLine) -> str | None:
    """Say how far something is that was asked for."""
    match sent:
        case BeginLine():
            return f"{sent.label} ..."
        case WaitLine():
            return sent.message
        case AlertLine():
            return f"acknowledged {sent.fingerprint[:8]}"
        case NotRunLine():
            return f"{sent.probe} was not run: {sent.detail}"
        case RanLine():
            return f"{sent.report.probe}: {ProbeOutcome().brief(sent)}"
    return None


def _process(known: GpuProcess) -> Process:
    """Look up whose process it is and what it runs; it may have ended, or be hidden from us."""
    place = Path("/proc", str(known.pid))
    user = command = ""
    with suppress(OSError):
        user = _user(place.stat().st_uid)
        with (place / "cmdline").open("rb") as file:
            command = file.read(COMMAND).replace(b"\0", b" ").decode(errors="replace").strip()
        command = command or (place / "comm").read_text(errors="replace").strip()
    return Process(known, user, command)


@cache
def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
