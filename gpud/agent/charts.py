"""Answers for charts: one process that reads the history, and what it has answered lately.

Who asks the same within a moment gets the same answer: a page that many look at costs what one of
them does. The process is started when somebody asks and ended when nobody has for a minute.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Final

import msgspec

from gpud.agent import processes
from gpud.agent.body import Body
from gpud.agent.charting.question import Question, Reply
from gpud.agent.conversation import GONE_S, Helper
from gpud.core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gpud.agent.charting.question import Asked, Known, Nameless
    from gpud.agent.conversation import Conversation

HELPER: Final = (sys.executable, "-I", "-m", "gpud.agent.charting")
DEADLINE_S: Final = 8.0
"""The process gives a slow disk up by itself, after 3 s; its start is in it."""
IDLE_S: Final = 60.0
"""An open page asks every 30 s."""
WAITING: Final = 16
"""Different questions at a time, one of them being answered; another is told to come again."""
KEPT_S: Final = 5.0
KEPT_BYTES: Final = 2**19
"""Of answers that may be asked for once more; the oldest go first."""
AGAIN: Final = "ask again in a second"


class Charts:
    """What is answered of the history in ``directory``."""

    def __init__(
        self,
        directory: Path,
        *,
        command: Sequence[str] = HELPER,
        on_spawn: Callable[[], None] = lambda: None,
        idle_s: float = IDLE_S,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._directory = str(directory)
        self._on_spawn = on_spawn
        self._idle_s = idle_s
        self._deadline_s = deadline_s
        self._turn = asyncio.Lock()
        self._helper = Helper(command)
        self._idle: asyncio.TimerHandle | None = None
        self._asked: dict[Asked, asyncio.Task[Body | Nameless]] = {}
        self._kept: dict[Asked, tuple[float, Body]] = {}

    async def answer(self, asked: Asked, known: Known) -> Body | Nameless:
        """Give what is known already, or is being asked, or ask.

        Errors: ``StoreError``, with the reasons of ``reader.ask``, and busy or too_large.
        """
        now_s = asyncio.get_running_loop().time
        self._forget(now_s() - KEPT_S)
        if asked in self._kept:
            return self._kept[asked][1]
        running = self._asked.get(asked)
        if running is None:
            if len(self._asked) >= WAITING:
                raise StoreError("others ask too", reason="busy", fix=AGAIN)
            question = Question(self._directory, asked, known)
            running = self._asked[asked] = asyncio.create_task(self._answered(question))
            running.add_done_callback(lambda ended: self._keep(asked, ended, now_s()))
        # Shielded: others may wait for it, and the process is busy with it all the same.
        return await asyncio.shield(running)

    async def close(self) -> None:
        """End the process; whoever still waits is told that there is no answer."""
        running = tuple(self._asked.values())
        for one in running:
            one.cancel()
        if running:
            await asyncio.wait(running)
        self._not_idle()
        await self._helper.end()

    def _keep(self, asked: Asked, ended: asyncio.Task[Body | Nameless], at_s: float) -> None:
        del self._asked[asked]
        if not ended.cancelled() and ended.exception() is None:
            answer = ended.result()
            if isinstance(answer, Body):
                self._kept[asked] = at_s, answer

    def _forget(self, before_s: float) -> None:
        n_bytes = sum(len(body.data) for _, body in self._kept.values())
        for asked, (at_s, body) in tuple(self._kept.items()):
            if at_s >= before_s and n_bytes <= KEPT_BYTES:
                return
            del self._kept[asked]
            n_bytes -= len(body.data)

    async def _answered(self, question: Question) -> Body | Nameless:
        async with self._turn:
            reply = await self._reply(msgspec.json.encode(question))
        if reply.trouble is not None:
            said = reply.trouble
            raise StoreError(said.message, reason=said.reason, fix=said.fix)
        answer = reply.body or reply.nameless
        assert answer is not None  # noqa: S101  # one of the three
        return answer

    async def _reply(self, question: bytes) -> Reply:
        self._not_idle()
        helper = self._helper.process or self._started()
        try:
            line = await helper.ask(question, deadline_s=self._deadline_s)
            reply = msgspec.json.decode(line, type=Reply)
        except TimeoutError:
            await self._helper.kill()
            said = f"the history was not read within {self._deadline_s:g} s"
            raise StoreError(said, reason="slow", fix="look at the disk") from None
        except msgspec.DecodeError:
            code = await helper.ended(GONE_S)
            await self._helper.kill()
            how = processes.signal_name(-code) if code is not None and code < 0 else f"code {code}"
            said = f"the process that reads the history ended ({how})"
            raise StoreError(said, reason="failed", fix=AGAIN) from None
        except asyncio.CancelledError:
            await self._helper.kill()  # it owes an answer to nobody
            raise
        if reply.last:
            self._end()
        else:
            self._idle = asyncio.get_running_loop().call_later(self._idle_s, self._end)
        return reply

    def _started(self) -> Conversation:
        if (left := self._helper.staying()) is not None:
            state = processes.condition(left)
            said = f"process {left.pid} was killed while it read the history, and stays"
            raise StoreError(f"{said} ({state})", reason="slow", fix="look at the disk")
        try:
            started = self._helper.start()
        except OSError as error:
            said = f"cannot start what reads the history: {error.strerror}"
            raise StoreError(said, reason="failed", fix=AGAIN) from error
        self._on_spawn()
        return started

    def _end(self) -> None:
        """Let the process go: its input ends, and so does it."""
        self._not_idle()
        self._helper.let_go()

    def _not_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
