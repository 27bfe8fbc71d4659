"""Check of the configured alert sinks; nothing is sent and no name is looked up."""

from __future__ import annotations

import stat
from dataclasses import replace
from importlib.util import find_spec

from msgspec import structs

from gpud.doctor.finding import Finding, advice, check, combined, ok, problem, unknown
from gpud.doctor.machine import Machine, writable_by_others
from gpud.settings_files import unreadable_secrets


@check(185, "alert sinks", may_block=True)  # the command may lie on a Windows drive
def alerts(machine: Machine) -> Finding:
    """Credentials of the webhook, the command's file, interop for the toast, Apprise."""
    here = replace(
        machine, settings=structs.replace(machine.settings, sysroot="/")
    )  # as the agent's
    settings = machine.settings.alerts
    files = [path for path in dict.fromkeys(settings.credentials_files) if path]
    findings = [_credentials(here, path) for path in files]
    if settings.webhook_urls and not files:
        findings.append(ok(f"webhook to {_addresses(settings.webhook_urls)}"))
    if settings.command:
        findings.append(_command(here, settings.command[0]))
    if settings.toast:
        findings.append(_toast(machine))
    if settings.apprise_urls:
        findings.append(_apprise(settings.apprise_urls))
    if health := machine.unwell("alerts"):
        findings.append(advice(str(health.detail), health.fix or "gpud alerts test says more"))
    if findings:
        return combined(*findings)
    where = "in gpud.toml" if unreadable_secrets(machine.settings.home) else "is configured"
    return ok(f"the log and the notice of the next shell; no other sink {where}")


def _addresses(urls: tuple[str, ...]) -> str:
    return f"{len(urls)} address{'es' if len(urls) > 1 else ''}"


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


def _command(machine: Machine, path: str) -> Finding:
    facts = machine.stat(path)
    if facts is None or not stat.S_ISREG(facts.st_mode):
        what = "is not there" if facts is None else "is no file"
        return problem(f"{path}, the command for alerts, {what}", "correct [alerts] command")
    if not facts.st_mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH):
        evidence = f"{path}, the command for alerts, is not executable"
        return problem(evidence, f"sudo chmod 755 {path}")
    place = machine.at(path)
    for part in (place, *place.parents):
        if mode := writable_by_others(part.stat()):
            return problem(
                f"the command for alerts can be replaced by others: {part} has {mode}",
                f"sudo chmod go-w {part}, or keep it where only root writes",
            )
    return ok(f"the command {path}")


def _toast(machine: Machine) -> Finding:
    if not machine.wsl:
        return problem("there is no Windows to show a toast", "[alerts] toast = false")
    if machine.interop:
        return ok("toasts through interop")
    return problem(
        "toasts need Windows programs, and those cannot be started",
        "[interop] enabled=true in /etc/wsl.conf, then from Windows: wsl --shutdown",
    )


def _apprise(urls: tuple[str, ...]) -> Finding:
    if find_spec("apprise") is None:
        fix = "gpud alerts test apprise says how to install it; apprise_urls = [] does without"
        return problem("[alerts] apprise_urls needs Apprise, which is not installed", fix)
    if any("://" not in url for url in urls):
        fix = "each must begin with a service, such as ntfy://"
        return unknown("an address in [alerts] apprise_urls names no service", fix)
    return ok(f"Apprise to {_addresses(urls)}")
