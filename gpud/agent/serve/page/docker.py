"""dockerd and GPU containers as root reports them, or why nothing is known of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpud.agent.serve.page import parts
from gpud.agent.serve.page.parts import UNKNOWN, mark, moment, spaced
from gpud.core.stats import human
from gpud.show.markup import Child, Html, el, joined, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpud.agent.serve.page.view import View

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
    root = view.document["root"]
    if root is None:
        health = view.document["health"].get("root") or {}
        why = health.get("detail") or "gpud's supervisor has not spoken yet"
        return parts.section(
            "docker",
            "Docker",
            el("p", mark("starting", "not known: "), parts.sentence(why)),
            parts.todo(health.get("fix")),
        )
    dockerd = root["dockerd"]
    why = dockerd.get("detail")
    return parts.section(
        "docker",
        "Docker",
        parts.facts(_dockerd(root)),
        el("p", parts.sentence(why), class_="lines") if why else None,
        parts.todo(dockerd.get("fix")),
        parts.facts(_containers(view)),
    )


def _dockerd(root: Mapping[str, Any]) -> Iterator[tuple[str, Child]]:
    dockerd = root["dockerd"]
    state, words = STATES.get(dockerd["state"], ("starting", spaced(dockerd["state"])))
    if dockerd.get("reason") and dockerd.get("up") and state == "ok":
        state = "degraded"
    yield "dockerd", mark(state, words)
    yield (
        "kept by",
        joined(
            OWNERS.get(dockerd["owner"], spaced(dockerd["owner"])),
            f", policy {dockerd['policy']}",
            None if root["privileged"] else ", without root: gpud only watches",
        ),
    )
    yield "version", text(dockerd["version"] or UNKNOWN, 80)
    ping_s = dockerd.get("ping_s")
    yield "ping", UNKNOWN if ping_s is None else human(ping_s, "seconds")
    if dockerd.get("last_start_s") is not None:
        yield "last start took", human(dockerd["last_start_s"], "seconds")
    restarts = dockerd["restarts"]
    told = [f"{count} {spaced(reason)}" for reason, count in sorted(restarts.items())]
    yield "restarts", f"{sum(restarts.values())} ({', '.join(told)})" if told else "none"
    if suspects := dockerd.get("suspect_sockets"):
        yield "suspect sockets", f"{suspects} ignored, see docs/dockerd.md"
    running = dockerd.get("containers_running")
    yield "containers running", UNKNOWN if running is None else str(running)


def _containers(view: View) -> Iterator[tuple[str, Child]]:
    said = view.document["root"].get("containers")
    if said is None:
        return
    toolkit = said.get("toolkit")
    if toolkit is not None:
        way = TOOLKITS.get(toolkit["state"], spaced(toolkit["state"]))
        why = toolkit.get("detail")
        yield "GPUs in containers", joined(way, joined(": ", text(why, 400)) if why else None)
    compared = view.document.get("containers")
    if compared is not None:
        yield "n-body in a container", text(compared["detail"], 400)
    elif said.get("image_present") is False:
        yield (
            "n-body in a container",
            joined("no image: ", parts.code(f"docker pull {said['image']}")),
        )
    run = said.get("run")
    if run is not None:
        yield "last container run", moment(run["finished_s"])
