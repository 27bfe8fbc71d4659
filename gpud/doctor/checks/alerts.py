"""Check of the configured alert sinks; nothing is sent and no name is looked up."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from gpud.doctor.finding import Finding, advice, check, combined, ok, problem, unknown
from gpud.doctor.machine import Machine, writable_by_others
from gpud.settings_files import unreadable_secrets

if TYPE_CHECKING:
    from pathlib import Path


@check(185, "alert sinks", may_block=True)  # the command may lie on a Windows drive
def alerts(machine: Machine) -> Finding:
    """Credentials of the webhook, the command's file, interop for the toast, Apprise."""
    here = replace(machine, settings=replace(machine.settings, sysroot="/"))  # as the agent's
    findings = [*_webhook(here), *_command(here), *_toast(machine), *_apprise(machine)]
    if health := machine.unwell("alerts"):
        findings.append(advice(str(health.detail), health.fix or "gpud alerts test says more"))
    if findings:
        return combined(*findings)
    where = "in gpud.toml" if unreadable_secrets(machine.settings.home) else "is configured"
    return ok(f"the log and the notice of the next shell; no other sink {where}")


def _addresses(urls: tuple[str, ...]) -> str:
    return f"{len(urls)} address{'es' if len(urls) > 1 else ''}"


def _webhook(machine: Machine) -> Iterator[Finding]:
    settings = machine.settings.alerts
    files = [path for path in dict.fromkeys(settings.credentials_files) if path]
    yield from (_credentials(machine, path) for path in files)
    if settings.webhook_urls and not files:
        yield ok(f"webhook to {_addresses(settings.webhook_urls)}")


def _credentials(machine: Machine, path: str) -> Finding:
    facts = machine.stat(path)
    if facts is None or not stat.S_ISREG(facts.st_mode):
        what = "is not there" if facts is None else "is no plain file"
        fix = "let [alerts] webhook_credentials_file name a file that gpud's user can read"
        return problem(f"{path}, the webhook's token, {what}", fix)
    if facts.st_mode & (stat.S_IROTH | stat.S_IWOTH):
        mode = f"{stat.S_IMODE(facts.st_mode):04o}"
        return advice(
            f"{path}, the webhook's token, is open to everybody: mode {mode}",
            f"sudo chown root:gpud {path}; sudo chmod 640 {path}",
        )
    return ok(f"the webhook's token is in {path}")


def _command(machine: Machine) -> Iterator[Finding]:
    if not machine.settings.alerts.command:
        return
    path = machine.settings.alerts.command[0]
    facts = machine.stat(path)
    if facts is None or not stat.S_ISREG(facts.st_mode):
        what = "is not there" if facts is None else "is no file"
        yield problem(f"{path}, the command for alerts, {what}", "correct [alerts] command")
    elif not facts.st_mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH):
        evidence = f"{path}, the command for alerts, is not executable"
        yield problem(evidence, f"sudo chmod 755 {path}")
    elif part := _replaceable(machine.at(path)):
        yield problem(
            "the command for alerts can be replaced by others: "
            f"{part} has {writable_by_others(part.stat())}",
            f"sudo chmod go-w {part}, or keep it where only root writes",
        )
    else:
        yield ok(f"the command {path}")


def _replaceable(place: Path) -> Path | None:
    """Return what others than its owner can write on the way to a file; None if nothing."""
    parts = (place, *place.parents)
    return next((part for part in parts if writable_by_others(part.stat())), None)


def _toast(machine: Machine) -> Iterator[Finding]:
    if not machine.settings.alerts.toast:
        return
    if not machine.wsl:
        yield problem("there is no Windows to show a toast", "[alerts] toast = false")
    elif machine.interop:
        yield ok("toasts through interop")
    else:
        yield problem(
            "toasts need Windows programs, and those cannot be started",
            "[interop] enabled=true in /etc/wsl.conf, then from Windows: wsl --shutdown",
        )


def _apprise(machine: Machine) -> Iterator[Finding]:
    urls = machine.settings.alerts.apprise_urls
    if not urls:
        return
    if find_spec("apprise") is None:
        fix = "gpud alerts test apprise says how to install it; apprise_urls = [] does without"
        yield problem("[alerts] apprise_urls needs Apprise, which is not installed", fix)
    elif any("://" not in url for url in urls):
        fix = "each must begin with a service, such as ntfy://"
        yield unknown("an address in [alerts] apprise_urls names no service", fix)
    else:
        yield ok(f"Apprise to {_addresses(urls)}")
