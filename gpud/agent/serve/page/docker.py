"""Docker section: dockerd and GPU containers as root reports them, or why nothing is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.agent.serve.page import parts
from gpud.agent.serve.page.parts import UNKNOWN, mark, moment
from gpud.core.stats import human
from gpud.show.document import Health
from gpud.show.markup import Child, Html, el, joined, text
from gpud.show.units import spaced

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.agent.serve.page.view import View
    from gpud.show.document import Containers, Root

OWNERS: Final = {
    "gpud": "gpud",
    "systemd": "systemd",
    "docker_desktop": "Docker Desktop",
    "other_user": "another user (rootless)",
    "other_distribution": "another WSL distribution",
    "other": "somebody else",
    "none": "nobody",
}
STATES: Final = {
    "off": ("starting", "not watched"),
    "absent": ("starting", "not running"),
    "starting": ("starting", "starting"),
    "running": ("ok", "running"),
    "unresponsive": ("failed", "does not answer"),
    "stopping": ("degraded", "is being ended, for it hung"),
    "backoff": ("degraded", "started again in a moment"),
    "crashloop": ("failed", "dies again and again"),
    "misconfigured": ("failed", "cannot start as it is configured"),
}
"""dockerd's states as signs and words."""
TOOLKITS: Final = {
    "runtime": "by NVIDIA's runtime",
    "cdi": "by CDI",
    "both": "by NVIDIA's runtime and CDI",
    "none": "not installed",
    "broken": "there, and cannot work",
    "unknown": "not known: Docker Desktop decides",
}


def section(view: View) -> Html:
    """Draw what root says; without root nothing is known, and it says so."""
    root = view.document.root
    if root is None:
        health = view.document.health.get("root", Health())
        why = health.detail or "gpud's supervisor has not spoken yet"
        return parts.section(
            "docker",
            "Docker",
            el("p", mark("starting", "not known: "), parts.sentence(why)),
            parts.todo(health.fix),
        )
    why = root.dockerd.detail or ""
    return parts.section(
        "docker",
        "Docker",
        parts.facts(_dockerd(root)),
        el("p", parts.sentence(why), class_="lines") if why else None,
        parts.todo(root.dockerd.fix),
        parts.facts(_containers(view, root.containers) if root.containers else ()),
    )


def _dockerd(root: Root) -> Iterator[tuple[str, Child]]:
    dockerd = root.dockerd
    state, words = STATES.get(dockerd.state, ("starting", spaced(dockerd.state)))
    if dockerd.reason and dockerd.up and state == "ok":
        state = "degraded"
    yield "dockerd", mark(state, words)
    owner = OWNERS.get(dockerd.owner, spaced(dockerd.owner))
    watches = "" if root.privileged else ", without root: gpud only watches"
    yield "kept by", f"{owner}, policy {dockerd.policy}{watches}"
    yield "version", text(dockerd.version or UNKNOWN, 80)
    yield "ping", UNKNOWN if dockerd.ping_s is None else human(dockerd.ping_s, "seconds")
    if dockerd.last_start_s is not None:
        yield "last start took", human(dockerd.last_start_s, "seconds")
    restarts = dockerd.restarts
    told = [f"{count} {spaced(reason)}" for reason, count in sorted(restarts.items())]
    yield "restarts", f"{sum(restarts.values())} ({', '.join(told)})" if told else "none"
    if dockerd.suspect_sockets:
        yield "suspect sockets", f"{dockerd.suspect_sockets} ignored, see docs/dockerd.md"
    running = dockerd.containers_running
    yield "containers running", UNKNOWN if running is None else str(running)


def _containers(view: View, containers: Containers) -> Iterator[tuple[str, Child]]:
    if (toolkit := containers.toolkit) is not None:
        way = TOOLKITS.get(toolkit.state, spaced(toolkit.state))
        why = joined(": ", text(toolkit.detail, 400)) if toolkit.detail else None
        yield "GPUs in containers", joined(way, why)
    if (compared := view.document.containers) is not None:
        yield "n-body in a container", text(compared.detail, 400)
    elif containers.image_present is False:
        pull = parts.code(f"docker pull {containers.image}")
        yield "n-body in a container", joined("no image: ", pull)
    if containers.run is not None:
        yield "last container run", moment(containers.run.finished_s)
