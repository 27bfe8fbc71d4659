"""dockerd and containerd: killed, stopped, misconfigured, replaced."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

from tests.chaos.distribution import DAEMON
from tests.chaos.faults import fault, kill, notice
from tests.waiting import until

if TYPE_CHECKING:
    import random

    from tests.chaos.distribution import Distribution
    from tests.chaos.faults import Damage

SOCKET = "unix:///run/docker.sock"
SOCKET_LOST_WITHIN_S = 4.0
"""The other one takes the name of the socket along where it had bound that in our place."""
FILE = "/etc/docker/daemon.json"
MISCONFIGURED = {
    "cut_short": ('{"debug": tru', "config_invalid"),
    "unknown_key": ('{"debgu": true}', "config_invalid"),
    "unknown_driver": (json.dumps(DAEMON | {"storage-driver": "paper"}), "storage_driver"),
    "no_unix_socket": (json.dumps(DAEMON | {"hosts": ["tcp://127.0.0.1:1"]}), "socket_elsewhere"),
    "address": (
        json.dumps(DAEMON | {"hosts": [SOCKET, "tcp://192.0.2.1:2375"]}),
        "address_unavailable",
    ),
    "port": (json.dumps(DAEMON | {"hosts": [SOCKET, "tcp://127.0.0.1:9945"]}), "port_taken"),
    "certificate": (
        json.dumps(DAEMON | {"hosts": [SOCKET, "tcp://127.0.0.1:2376"], "tls": True}),
        "tls_invalid",
    ),
    "data_root": (json.dumps(DAEMON | {"data-root": "/etc/passwd"}), "data_root_invalid"),
}
"""Eight daemon.json with which dockerd does not start, and the reason to be named."""


@fault()
def dockerd_killed(distro: Distribution, chance: random.Random) -> Damage:
    kill(distro.named("dockerd"))
    yield None


@fault()
def dockerd_stopped(distro: Distribution, chance: random.Random) -> Damage:
    kill(distro.named("dockerd"), signal.SIGSTOP)
    yield None


@fault()
def dockerd_misconfigured(distro: Distribution, chance: random.Random) -> Damage:
    text, reason = MISCONFIGURED[chance.choice(sorted(MISCONFIGURED))]
    distro.path(FILE).write_text(text)
    kill(distro.named("dockerd"))
    yield notice("dockerd", reason)
    distro.path(FILE).write_text(json.dumps(DAEMON))
    if reason == "port_taken":  # with a second fault it may be dockerd that has the port
        kill(distro.named("dockerd"), signal.SIGTERM)


@fault()
def dockerd_replaced(distro: Distribution, chance: random.Random) -> Damage:
    distro.root(
        "dockerd --data-root=/var/lib/strange --exec-root=/run/strange"
        f" --pidfile=/run/strange.pid -H {SOCKET} >/dev/null 2>&1 &"
    )
    yield notice("dockerd", "handed_over")
    strangers = [p for p in distro.processes() if "strange" in p.command]
    kill(strangers, signal.SIGTERM)
    kill(strangers, signal.SIGCONT)  # one that another fault stopped acts only then
    until(
        lambda: not [p for p in distro.processes() if "strange" in p.command],
        "the end of the other dockerd",
    )
    if (
        distro.dockerd().get("reason") == "socket_gone"
    ):  # the other one took the socket's name along
        kill(distro.named("dockerd"), signal.SIGTERM)  # the fix that is named


@fault()
def containerd_killed(distro: Distribution, chance: random.Random) -> Damage:
    kill(distro.named("containerd"))
    yield None


@fault()
def docker_socket_gone(distro: Distribution, chance: random.Random) -> Damage:
    distro.root("rm /run/docker.sock")
    yield notice("dockerd", "socket_gone")
    kill(distro.named("dockerd"), signal.SIGTERM)  # the fix that is named
    kill(distro.named("dockerd"), signal.SIGCONT)  # one that another fault stopped acts only then
