"""Whether the configured alert sinks can work; nothing is sent and no name is looked up."""

from __future__ import annotations

import os
import stat
from importlib.util import find_spec
from typing import TYPE_CHECKING

from gpud.doctor.finding import Finding, advice, combined, ok, problem, unknown
from gpud.doctor.machine import Kind
from gpud.settings_files import unreadable_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.core.sections import Alerts
    from gpud.doctor.machine import Machine

TITLE = "alert sinks"
ORDER = 185
SUMMARY = "the webhook's credentials, the command's file, interop for the toast, Apprise"
TRY = "gpud alerts test says more"
REGISTRATIONS = ("WSLInterop", "WSLInterop-late")


def look(machine: Machine) -> Finding:
    """Look at what each sink needs here, and pass on what the running agent says of them."""
    settings = machine.settings.alerts
    found = [*_webhook(machine, settings), *_command(machine, settings)]
    found += [*_toast(machine, settings), *_apprise(settings)]
    told = machine.health("alerts")
    if told.get("level"):
        found.append(advice(str(told.get("detail")), str(told.get("fix") or TRY)))
    if not found:
        hidden = unreadable_secrets(machine.settings.home)
        where = "is configured" if hidden is None else "in gpud.toml"
        return ok(f"the log and the notice of the next shell; no other sink {where}")
    return combined(*found)


def _webhook(machine: Machine, settings: Alerts) -> Iterator[Finding]:
    urls = settings.webhook_urls
    files = [path for path in dict.fromkeys(settings.credentials_files) if path]
    yield from (_credentials(machine, path) for path in files)
    if urls and not files:
        yield ok(f"webhook to {len(urls)} address{'es' if len(urls) > 1 else ''}")


def _credentials(machine: Machine, path: str) -> Finding:
    kind = machine.kind(path)
    if kind is not Kind.FILE:
        what = "is not there" if kind is Kind.ABSENT else "is no plain file"
        fix = "let [alerts] webhook_credentials_file name a file that gpud's user can read"
        return problem(f"{path}, the webhook's token, {what}", fix)
    mode = machine.at(path).stat().st_mode
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        return advice(
            f"{path}, the webhook's token, is open to everybody: mode {stat.S_IMODE(mode):04o}",
            f"sudo chown root:gpud {path}; sudo chmod 640 {path}",
        )
    return ok(f"the webhook's token is in {path}")


def _command(machine: Machine, settings: Alerts) -> Iterator[Finding]:
    if not settings.command:
        return
    path = settings.command[0]
    kind = machine.kind(path)
    if kind is not Kind.FILE:
        what = "is not there" if kind is Kind.ABSENT else "is no file"
        yield problem(f"{path}, the command for alerts, {what}", "correct [alerts] command")
        return
    mode = machine.at(path).stat().st_mode
    if not mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH):
        yield problem(
            f"{path}, the command for alerts, is not executable", f"sudo chmod 755 {path}"
        )
    elif others := _writable(machine, path):
        yield problem(
            f"the command for alerts can be replaced by others: {others}",
            f"sudo chmod go-w {others.split()[0]}, or keep it where only root writes",
        )
    else:
        yield ok(f"the command {path}")


def _writable(machine: Machine, path: str) -> str:
    """Name what others than its owner can write on the way to a file; empty for nothing."""
    place = machine.at(path)
    root = machine.at("/")
    for part in (place, *place.parents):
        mode = part.stat().st_mode
        sticky = stat.S_ISDIR(mode) and mode & stat.S_ISVTX
        if mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky:
            return f"/{os.path.relpath(part, root)} has mode {stat.S_IMODE(mode):04o}"
        if part == root:
            break
    return ""


def _toast(machine: Machine, settings: Alerts) -> Iterator[Finding]:
    if not settings.toast:
        return
    if not machine.wsl:
        yield problem("there is no Windows to show a toast", "[alerts] toast = false")
        return
    texts = [machine.text(f"/proc/sys/fs/binfmt_misc/{name}") for name in REGISTRATIONS]
    if any(text is not None and text.startswith("enabled") for text in texts):
        yield ok("toasts through interop")
    else:
        yield problem(
            "toasts need Windows programs, and those cannot be started",
            "[interop] enabled=true in /etc/wsl.conf, then from Windows: wsl --shutdown",
        )


def _apprise(settings: Alerts) -> Iterator[Finding]:
    urls = settings.apprise_urls
    if not urls:
        return
    if find_spec("apprise") is None:
        fix = "gpud alerts test apprise says how to install it; apprise_urls = [] does without"
        yield problem("[alerts] apprise_urls needs Apprise, which is not installed", fix)
    elif any("://" not in url for url in urls):
        fix = "each must begin with a service, such as ntfy://"
        yield unknown("an address in [alerts] apprise_urls names no service", fix)
    else:
        yield ok(f"Apprise to {len(urls)} address{'es' if len(urls) > 1 else ''}")
