"""Supervisor loop: observe, decide, act, report; one thread woken by process ends and the clock."""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

import gpud
from gpud import regular_file
from gpud.core import wire
from gpud.core.clock import Backoff
from gpud.core.errors import AlreadyRunning
from gpud.core.report import RootReport
from gpud.root import agent as agents
from gpud.root import files, process, report
from gpud.root.ask import Ask
from gpud.root.containers import Containers
from gpud.root.dockerd import LARGEST_LOG, Dockerd
from gpud.root.dockerd_facts import Action, Api, DockerdObservation, DockerdState, Limits, Memory
from gpud.root.dockerd_step import POLICIES, step
from gpud.root.kernel_log import KernelLog

if TYPE_CHECKING:
    from gpud.core import sections
    from gpud.core.report import ProcessRef
    from gpud.core.settings import Settings
    from gpud.root.dockerd_facts import Exit
    from gpud.root.lock import Lock

log = structlog.get_logger()

EAGER_S = 0.05
"""How often to ask while dockerd starts: its own cold start is about 150 ms."""
FACTS_EVERY = 30
"""Pings between two looks at what dockerd says of itself: SIGHUP changes it in the same process,
and an answer may not have come in time.
"""
AGENT_STOP_S = 5.0
LEFT_STOP_S = 1.0
"""Of the agent of a killed supervisor, which ends by itself: dockerd is looked at after it."""
AFTER_ERROR_S = 1.0
MOST_REAPED = 1000
"""In one round: what the agent leaves behind, which is ours to reap, may end faster than that."""
OUTCOME_S = 0.5
"""A main thread is a zombie some moments before its process can be waited for."""


class Supervisor:
    """The loop and what it holds. ``chance`` gives the jitter of back-offs."""

    def __init__(self, settings: Settings, agent: agents.AgentManager, lock: Lock) -> None:
        self.policy: str = settings.dockerd.policy
        if os.geteuid() != 0 and self.policy != "off":
            self.policy = "observe"
        self.decide = POLICIES[self.policy]
        self.settings = settings
        self.agent = agent
        self.dockerd = Dockerd(settings)
        self.containers = Containers(settings)
        self.kernel_log = KernelLog(settings.sysroot)
        self.limits = limits(settings.dockerd)
        self.memory = Memory(since_s=time.monotonic())
        self._lock = lock
        self._chance = random.SystemRandom()
        self._observation: DockerdObservation | None = None
        self._ask: Ask | None = None  # a request that is open
        self._late: Ask | None = None  # a ping that got no answer in time, and still may
        self._next_ask_s = 0.0
        self._ping_s: float | None = None
        self._facts = report.Facts()
        self._facts_of: ProcessRef | None = None
        self._next_facts_s = 0.0
        self._exit: Exit | None = None
        self._stop = False
        self._reported: RootReport | None = None
        self._next_beat_s = 0.0
        self._started_s = time.time()
        me = process.ref(os.getpid())
        if me is None:
            raise FileNotFoundError("/proc/self/stat")
        self._me, self._boot_id = me, report.boot_id()
        self._path = Path(settings.run_dir, "root.json")

    def loop(self) -> int:
        """Go round until told to stop. The process ends with it, and gives its files back then."""
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, self._signalled)
        log.info("supervisor_started", pid=os.getpid(), policy=self.policy)
        if (left := report.last_agent(self._path)) is not None:
            process.end(left, LEFT_STOP_S)  # it ends with its supervisor, which was killed
        while not self._stop:
            try:
                self._round(reader)
            except Exception:  # the boundary: whatever happens, both processes stay kept
                log.exception("round_failed")
                select.select([reader], [], [], AFTER_ERROR_S)
        self.containers.stop()
        if self.agent.process is not None:
            process.end(self.agent.process, AGENT_STOP_S)
        log.info("supervisor_stopped", dockerd_kept=self.memory.process is not None)
        return 0

    def _signalled(self, number: int, _frame: object) -> None:
        if number != signal.SIGCHLD:
            self._stop = True

    def _round(self, reader: int) -> None:
        self._wait(reader)
        self._reap()
        self._keep_agent(time.monotonic())
        if self.policy != "off":
            self._keep_dockerd()
            if self._observation is not None:
                self.containers.step(self._observation, self.dockerd.config, time.monotonic())
        self.kernel_log.step(time.monotonic())
        self._report()

    def _wait(self, reader: int) -> None:
        dockerd = None if self.memory.process is None else process.open_fd(self.memory.process)
        if dockerd is None and self.memory.process is not None:
            return  # gone already: look at once
        asked = None if self._ask is None else self._ask.fileno()
        try:
            poll = select.poll()
            for descriptor in (reader, dockerd, asked):
                if descriptor is not None:
                    poll.register(descriptor, select.POLLIN)
            poll.poll(max(0.0, self._wake_s() - time.monotonic()) * 1000 + 1)
        finally:
            if dockerd is not None:
                os.close(dockerd)
        with contextlib.suppress(BlockingIOError):
            os.read(reader, 4096)

    def _wake_s(self) -> float:
        moments = [self._next_beat_s]
        if self.agent.process is None:
            moments.append(self.agent.next_try_s)
        if self.policy != "off":
            timeout_s = self.settings.dockerd.ping_timeout_s
            moments.append(self._ask.begun_s + timeout_s if self._ask else self._next_ask_s)
        return min(moments)

    def _reap(self) -> None:
        for _ in range(MOST_REAPED):
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self.agent.child is not None and pid == self.agent.child.pid:
                self.agent.ended(status, time.monotonic(), self._chance.random())
                if not self._stop:
                    log.warning("agent_ended", how=self.agent.detail, restarts=self.agent.restarts)
            elif self.dockerd.child is not None and pid == self.dockerd.child.pid:
                self._exit = self.dockerd.ended(status)
                self._next_ask_s = 0.0
            else:
                self.containers.ended(pid, status)

    def _keep_agent(self, now_s: float) -> None:
        if self.agent.process is None and now_s >= self.agent.next_try_s:
            self.agent.start(now_s)
            log.info("agent_started", pid=self.agent.child.pid if self.agent.child else None)

    def _keep_dockerd(self) -> None:
        now_s, wall_s = time.monotonic(), time.time()
        gone = self.memory.process is not None and not process.alive(self.memory.process)
        answer = self._answer(now_s)
        if answer is None and not gone:
            return
        observation = replace(self._look(answer, gone=gone), wall_s=wall_s)
        before = self.memory
        self.memory, action = step(self.memory, observation, self.decide, self.limits, now_s)
        self._observation = observation
        if self.memory.state is not before.state:
            log.info(
                "dockerd",
                state=str(self.memory.state),
                owner=str(observation.owner),
                pid=observation.process.pid if observation.process else None,
                held_for=self.memory.hold.cause.slug if self.memory.hold else None,
                detail=self.memory.last_exit.words() if self.memory.last_exit else None,
            )
        if action is not Action.NOTHING:
            log.warning("dockerd_action", action=str(action), failures=self.memory.failures)
            self.dockerd.act(action, observation.process)
        if self.memory.process != self._facts_of:
            self._facts, self._facts_of = report.Facts(), self.memory.process
            self._next_facts_s = now_s
        eager = self.memory.state is DockerdState.STARTING or action is Action.START
        pause_s = EAGER_S if eager else self.settings.dockerd.ping_interval_s
        if observation.process is None and self.memory.next_try_s > now_s:
            pause_s = min(pause_s, max(EAGER_S, self.memory.next_try_s - now_s))
        begun_s = answer.begun_s if answer is not None else now_s
        self._next_ask_s = max(now_s + EAGER_S, begun_s + pause_s)

    def _answer(self, now_s: float) -> Ask | None:
        """Give a finished ping, None while there is nothing new to say."""
        ask = self._ask
        if ask is None:
            if now_s < self._next_ask_s:
                return None
            target = "/_ping"
            answers = self._observation is not None and self._observation.api is Api.ANSWERS
            if answers and now_s >= self._next_facts_s:
                target = "/info"
                self._next_facts_s = now_s + FACTS_EVERY * self.settings.dockerd.ping_interval_s
            ask = self._ask = Ask(self.dockerd.config.socket, target)
        if ask.api is None:
            ask.read()
        if ask.api is None and now_s - ask.begun_s >= self.settings.dockerd.ping_timeout_s:
            ask.give_up()
        if ask.api is None:
            return None
        self._ask = None
        if ask.target == "/_ping":
            self._ping_s = ask.took_s
            return ask
        ask.close()
        self._facts = report.learned(self._facts, ask.body())
        self._next_ask_s = now_s
        return None

    def _look(self, answer: Ask | None, *, gone: bool) -> DockerdObservation:
        api = answer.api if answer is not None and answer.api is not None else Api.REFUSED
        listener = answer.peer_pid if answer is not None else None
        process_ref = self.dockerd.find(listener)  # looked up once: it may die at any moment
        if listener and process_ref is None and process.ref(listener) is None:
            api, listener = Api.REFUSED, None  # it was put to one that has died: nobody listens
            process_ref = self.dockerd.find(None)
        if self.dockerd.child is not None and process_ref is None:
            process.wait_child(self.dockerd.child.pid, OUTCOME_S)
            self._reap()  # its exit code belongs to this look
        over = gone or self.memory.start_requested_s is not None
        if over and self._exit is None and process_ref is None:
            self._exit = self.dockerd.lost()
        exit_, self._exit = self._exit, None
        observation = self.dockerd.look(api, listener, process_ref, self.memory, exit_)
        if self._answered_late(answer) and observation.activity is not None:
            observation = replace(observation, activity=replace(observation.activity, active=True))
        return replace(observation, jitter=self._chance.random())

    def _answered_late(self, answer: Ask | None) -> bool:
        """Return whether dockerd answered this ping with an error, or an earlier one too late.

        The first ping that gets no answer in time stays open for one.
        """
        silent = answer if answer is not None and answer.api is Api.SILENT else None
        same = silent is not None and self._late and self._late.peer_pid == silent.peer_pid
        late = self._late if same else silent
        answered = any(ask.has_answer() for ask in (silent, late) if ask is not None)
        open_ask = None if answered else late
        for ask in (self._late, silent):
            if ask is not None and ask is not open_ask:
                ask.close()
        self._late = open_ask
        return answered

    def _report(self) -> None:
        now_s = time.monotonic()
        if self.policy != "off" and self._observation is None:
            return  # the first look is a matter of milliseconds
        facts = replace(
            self._facts,
            ping_s=self._ping_s,
            trouble=self.dockerd.trouble,
            unreachable=self.dockerd.unreachable,
            log=str(self.dockerd.log),
            suspect_sockets=self.dockerd.suspect_sockets,
        )
        status = RootReport(
            gpud_version=gpud.__version__,
            process=self._me,
            privileged=os.geteuid() == 0,
            boot_id=self._boot_id,
            started_s=self._started_s,
            written_s=time.time(),
            beat_s=now_s,
            dockerd=report.dockerd(self.memory, self._observation, policy=self.policy, facts=facts),
            agent=self.agent.report(),
            containers=self.containers.report() if self.policy != "off" else None,
            kernel_log=self.kernel_log.report(),
        )
        last = self._reported
        if last and now_s < self._next_beat_s and status.equals_but_times(last):
            return
        if not self._restore_directories():
            return
        regular_file.replace(self._path, wire.encode(status))
        self._reported, self._next_beat_s = status, now_s + report.BEAT_S
        for name in ("dockerd.log", "agent.log", "root.err"):  # structlog rotates the others
            files.rotate(Path(self.settings.log_dir, name), LARGEST_LOG)

    def _restore_directories(self) -> bool:
        """Make again what somebody removed; end, and give False, where another supervisor runs."""
        try:
            renewed = self._lock.renew()
        except AlreadyRunning as error:
            log.warning("superseded", by=str(error))
            self._stop = True
            return False
        with contextlib.suppress(OSError):  # of logs on a disk that is full or read-only by now
            agents.prepare(self.settings, self.agent.user)
        if renewed and self.agent.process is not None:
            log.warning("run_directory_gone", restarted=self.agent.process.pid)
            process.send(self.agent.process, signal.SIGTERM)  # its socket and files were in it
        return True


def limits(chosen: sections.DockerdSettings) -> Limits:
    """Return the limits from the settings; 0 selects gpud's default."""
    usual = Limits()
    return Limits(
        start_timeout_s=chosen.start_timeout_s,
        hung_after_s=chosen.hung_after_s or usual.hung_after_s,
        containerd_after_s=chosen.hung_after_s or usual.containerd_after_s,
        kill_after_s=chosen.kill_after_s or usual.kill_after_s,
        kill_at_work_after_s=chosen.kill_after_s or usual.kill_at_work_after_s,
        look_within_s=2 * (chosen.ping_interval_s + chosen.ping_timeout_s),
        backoff=Backoff(longest_s=chosen.backoff_max_s),
    )
