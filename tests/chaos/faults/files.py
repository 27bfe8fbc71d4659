"""Disk and files: full, corrupt, read-only, locked, gone."""

from __future__ import annotations

import signal
import subprocess
from typing import TYPE_CHECKING

from tests.chaos.faults import fault, kill, notice, soon
from tests.chaos.faults.processes import agents

if TYPE_CHECKING:
    import random

    from tests.chaos.distribution import Distribution
    from tests.chaos.faults import Damage

STATE = "/var/lib/gpud"
LOCKER = (
    "import sqlite3,sys\n"
    f"history = sqlite3.connect('{STATE}/gpud.db', isolation_level=None, timeout=60)\n"
    "history.execute('BEGIN IMMEDIATE')\n"
    "print('locked', flush=True)\n"
    "sys.stdin.read()\n"
)
NAMED_LATE_S = 20.0
"""Another fault may keep the agent from its start for a while."""
EMPTIED = (
    f'import sqlite3; sqlite3.connect("{STATE}/gpud.db").execute("PRAGMA wal_checkpoint(TRUNCATE)")'
)


@fault()
def disk_full(distro: Distribution, chance: random.Random) -> Damage:
    """Its log of SQLite has room of its own, so that has to go first."""
    distro.root(f"/usr/bin/python3 -c '{EMPTIED}'")
    distro.full(full=True)
    yield notice("store", "disk_full")
    distro.full(full=False)
    if not soon(distro.machine.containers, 10.0):  # a dockerd that began meanwhile passed them by
        kill(distro.named("dockerd"), signal.SIGTERM)


@fault("history")
def history_corrupt(distro: Distribution, chance: random.Random) -> Damage:
    """Spoil the file, or its log alone: behind the damage SQLite takes that for its end.

    Pages behind it may be in the file already, so that the damage shows whenever one is read. No
    later trial is to meet that: the file goes.
    """
    whole = chance.random() < 0.5
    kill(agents(distro))
    spoiled = distro.path(f"{STATE}/gpud.db-wal")
    if spoiled.exists():  # an agent that ended in peace leaves none
        with spoiled.open("r+b") as log:
            if whole:
                log.truncate()
            else:
                log.seek(chance.choice((4096, 16384, 65536)))
                log.write(chance.randbytes(4096))
    if whole:
        with distro.path(f"{STATE}/gpud.db").open("r+b") as file:
            file.write(chance.randbytes(4096))
    yield notice("store", "corrupt_set_aside") if whole else None
    if whole:
        soon(lambda: distro.health().get("store"), NAMED_LATE_S)
        distro.root("/opt/gpud/bin/gpud restart")  # the fix that is named
    else:
        distro.root(f"/opt/gpud/bin/gpud down; rm -f {STATE}/gpud.db*; /opt/gpud/bin/gpud up")


@fault()
def history_read_only(distro: Distribution, chance: random.Random) -> Damage:
    distro.root(f"chown -R root {STATE}; chmod -R a-w {STATE}")
    kill(agents(distro))
    yield notice("store")
    distro.root(f"chown -R gpud {STATE}; chmod -R u+w {STATE}")


@fault()
def history_locked(distro: Distribution, chance: random.Random) -> Damage:
    locker = subprocess.Popen(
        distro.machine.inside("/usr/bin/python3", "-I", "-c", LOCKER),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert locker.stdout is not None
    locker.stdout.readline()
    yield notice("store") if chance.random() < 0.5 else None  # or it is over before that
    locker.communicate(b"")


@fault(of="directory")
def logs_gone(distro: Distribution, chance: random.Random) -> Damage:
    distro.root("rm -rf /var/log/gpud")
    yield None


@fault(of="directory")
def run_directory_gone(distro: Distribution, chance: random.Random) -> Damage:
    distro.root("rm -rf /run/gpud")
    yield None
    distro.open_shell()
