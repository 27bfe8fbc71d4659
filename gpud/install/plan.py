"""Plan of an installation: its steps in order, each looked at when its turn comes."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpud.install import manifest, ownership, packages, people, places, tree, unit
from gpud.install.console import CLEAN, InstallError, output
from gpud.install.places import TREE
from gpud.install.setup import Done, Step, put

if TYPE_CHECKING:
    from gpud.install.setup import Plan, Setup

LOGIN: Final = re.compile(r"(?![A-Z][A-Z0-9_]*$)[A-Za-z_][A-Za-z0-9_.-]*")
"""Names that sudoers gives no meaning of their own."""


def plan(setup: Setup) -> Plan:
    """Return all steps. Errors: ``InstallError`` where one cannot be planned."""
    yield Done(f"Python ({setup.python})")
    yield from packages.sudo(setup)
    yield from packages.docker(setup)
    yield from service_user(setup)
    yield from group(setup)
    yield from tree.steps(setup)
    target = TREE / "bin/gpud"
    yield from setup.link(places.COMMAND, target, f"{target} is the command")
    yield from settings(setup)
    yield from completion(setup)
    yield from setup.file(places.MANPAGE, setup.source.read("gpud.1"))
    yield from rule(setup)
    yield from unit.steps(setup)
    yield from hooks(setup)


def service_user(setup: Setup) -> Plan:
    """Plan for user gpud, and for the history that an earlier installation left."""
    if people.person("gpud"):
        yield Done("system user gpud")
    else:
        words = ("--system", "--user-group", "--no-create-home", "--home-dir", places.STATE_DIR)
        add = partial(setup.console.run, "useradd", *words, "--shell", "/usr/sbin/nologin", "gpud")
        title = "system user gpud, which everything but the supervisor runs as"
        yield Step(title, add, "useradd says why", ("user gpud",))
    for kept in places.AGENTS:
        if kept.exists() and kept.lstat().st_uid == 0:
            yield Step(
                f"{kept} for user gpud again",
                partial(ownership.give, "gpud", str(kept)),
                "move what the line above names out of the way, then run this again",
            )


def group(setup: Setup) -> Plan:
    """Plan for the group of who may ask gpud without a password."""
    run, login = setup.console.run, setup.login
    if people.group_exists(places.PEOPLE):
        yield Done(f"group {places.PEOPLE}")
    else:
        title = f"group {places.PEOPLE}, whose members may ask gpud without a password"
        add = partial(run, "groupadd", "--system", places.PEOPLE)
        yield Step(title, add, "groupadd says why", (f"group {places.PEOPLE}",))
    if login == "root":
        return
    if people.in_group(login, places.PEOPLE):
        yield Done(f"group {places.PEOPLE} ({login})")
        return
    join = partial(run, "usermod", "-aG", places.PEOPLE, login)
    yield Step(
        f"{login} into the group {places.PEOPLE}", join, "usermod says why", (f"person {login}",)
    )


def settings(setup: Setup) -> Plan:
    """Plan for gpud.toml, and secrets.toml for root and the agent; neither is overwritten."""
    for kind, name in (("settings", "gpud.toml"), ("secrets", "secrets.toml")):
        file, text = places.CONFIG_DIR / name, setup.source.read(name)
        if not os.path.lexists(file):
            note, secret = f"{kind} {hashlib.sha256(text).hexdigest()}", kind == "secrets"
            title = f"{file}{' for root and the agent only' if secret else ''}"
            yield Step(title, partial(_write, file, text, secret=secret), notes=(note,))
        elif _kept(file):
            log = f"{setup.console.log} says why"
            yield Step(f"{file} for root and the agent again", partial(_share, file), log)
        else:
            yield Done(f"{file} (yours)")


def _write(file: Path, text: bytes, *, secret: bool) -> None:
    put(file, text, 0o640 if secret else 0o644, _agents_group() if secret else 0)


def _kept(file: Path) -> bool:
    """Return whether a settings file is as a removal leaves one with secrets: for root alone."""
    facts = file.lstat()
    for_root = (facts.st_mode, facts.st_uid, facts.st_gid) == (stat.S_IFREG | 0o640, 0, 0)
    return for_root and _agents_user() != "root"


def _share(file: Path) -> None:
    file.chmod(0o640)  # first: the mode may be 664
    os.chown(file, -1, _agents_group())


def _agents_group() -> int:
    user = people.person(_agents_user() or "gpud")
    if user is None:
        raise InstallError("there is no user of the agent's", "set [agent] user")
    return user.pw_gid


def _agents_user() -> str | None:
    """Return ``[agent] user`` as the settings have it; None where they cannot be read."""
    shown = output(*tree.gpud_of(TREE, "config", "show"), env=CLEAN)
    found = re.search(r'^agent\.user = "(.*)"$', shown or "", re.MULTILINE)
    return found[1] if found else None


def completion(setup: Setup) -> Plan:
    """Plan for the completion of three shells, which the new gpud writes."""
    for shell, path in places.COMPLETION.items():
        if not (TREE / "bin/python").exists():
            yield Step(str(path), lambda: None)
            continue
        text = output(*tree.gpud_of(TREE, "completion", shell), env=CLEAN)
        if text is None:
            raise InstallError(f"gpud completion {shell} fails", "run it by hand; it says why")
        yield from setup.file(path, text.encode())


def rule(setup: Setup) -> Plan:
    """Plan for the sudo rule, which names every person that gpud was installed for."""
    login = setup.login
    if login == "root":
        yield Done("sudo rule (root needs none)")
        return
    if not LOGIN.fullmatch(login):
        setup.later.append(
            f"a sudo rule for {login} cannot be written safely; write {places.RULE} by hand, from"
            " sudoers.snippet"
        )
        return
    logins = ", ".join(sorted({*manifest.values("rule"), login}))
    snippet = setup.source.read("sudoers.snippet").decode()
    text = re.sub(r"^%sudo ", f"{logins} ", snippet, flags=re.MULTILINE).encode()
    if not setup.dry:
        judged = setup.scratch / "sudoers"
        judged.write_bytes(text)
        if output("visudo", "-cqf", judged) is None:
            fix = "use a login name without special characters"
            raise InstallError(f"visudo refuses the rule for {login}", fix)
        manifest.note(f"rule {login}")
    yield from setup.file(places.RULE, text, 0o440)


def hooks(setup: Setup) -> Plan:
    """Plan for the block in the person's shell files, made as that person."""
    if setup.options.no_bashrc:
        return
    login, person, log = setup.login, setup.person, setup.console.log
    kept = Path(person.pw_dir) / ".local/state/gpud"  # what the hook remembers
    if not people.there(kept):
        make = partial(people.run_as_user, setup.console, person, "mkdir", "-p", "--", kept)
        notes = (*_user_parents(login, kept), f"userstate {login} {kept}")
        failed = setup.left(f"{kept} could not be made; {log} says why. gpud starts without")
        yield Step(str(kept), make, notes=notes, failed=failed)
    python = TREE / "bin/python"
    for file, snippet in people.hooks(person).items():
        if python.exists() and not people.block(person, python, "has", file, snippet).returncode:
            yield Done(str(file))
            continue
        made = "old" if people.there(file) else "new"
        sorry = f"{file} could not be changed; {log} says why. Add {snippet} to it by hand"
        failures = len(setup.later)
        yield Step(
            str(file),
            partial(_add_block, setup, file, snippet),
            notes=(*_user_parents(login, file), f"hook {login} {made} {file}"),
            failed=setup.left(sorry),
        )
        if len(setup.later) == failures:
            setup.new_shell.append(f"gpud in {file}")


def _add_block(setup: Setup, file: Path, snippet: Path) -> None:
    ran = people.block(setup.person, TREE / "bin/python", "add", file, snippet)
    setup.console.write(ran.stdout)
    ran.check_returncode()


def _user_parents(login: str, path: Path) -> tuple[str, ...]:
    """Return the notes for directories below a home that will be made."""
    missing = [each for each in reversed(path.parents) if not people.there(each)]
    return tuple(f"userdir {login} {each}" for each in missing)
