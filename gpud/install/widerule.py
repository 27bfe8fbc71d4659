"""Find sudo rules that hand out Docker with free arguments, and take them away on request."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpud.install.console import visible

if TYPE_CHECKING:
    from pathlib import Path

DOCKER = frozenset({"dockerd", "docker", "containerd", "ctr", "nerdctl"})
"""Commands that are root with arguments of the caller's choice."""

COMMENT = re.compile(r"(?<!\\)#(?!\d).*")  # `#1000` is a uid
NOPASSWD = re.compile(r"\s*(?:\([^)]*\)\s*)?NOPASSWD\s*:\s*(?P<commands>.*)")
PREFIX = re.compile(r"\s*(?:\([^)]*\)\s*)?(?:[A-Z_]+\s*:\s*)*")  # who to become, and tags
HOSTS = re.compile(r"(?<!\\):[^:,=]*(?<!\\)=")  # `a = ... : b = ...`
COMMA = re.compile(r"(?<!\\),")

WHY = """\
  Who may start this with arguments of his own is root without a password: dockerd takes any
  --config-file, --host or --add-runtime, and who may speak to it can mount / into a container.
  gpud needs no such rule: its own names three commands with fixed arguments."""


@dataclass(frozen=True, slots=True)
class WideRule:
    """A rule with a wide command, at lines ``first`` to ``last`` (from 1, both included)."""

    path: Path
    first: int
    last: int
    line: str
    alone: bool  # nothing else is on it, so that the whole of it may go


def logical(text: str) -> list[tuple[int, int, str]]:
    """Join continued lines: first and last number, and the text without its comment."""
    joined_lines, lines, at = [], text.split("\n"), 0
    while at < len(lines):
        first, joined = at, lines[at]
        while joined.endswith("\\") and at + 1 < len(lines):
            at += 1
            joined = f"{joined[:-1]} {lines[at].strip()}"
        joined_lines.append((first + 1, at + 1, COMMENT.sub("", joined).strip()))
        at += 1
    return joined_lines


def is_wide(command: str) -> bool:
    """Say whether a command of a rule leaves arguments of Docker's to the caller.

    No argument in the rule means any argument; ``""`` means none.
    """
    words = command.split()
    if not words or words[0].startswith("!"):
        return False
    free = any(set("*?[") & set(word) for word in words[1:])
    name = words[0].rpartition("/")[2]
    if name in DOCKER:
        return free or len(words) == 1
    return name == "service" and words[1:2] == ["docker"] and free


def aliases(texts: list[str]) -> frozenset[str]:
    """Name every ``Cmnd_Alias`` that holds a wide command, also through another alias."""
    members: dict[str, list[str]] = {}
    for text in texts:
        for _, _, line in logical(text):
            if re.match(r"(Cmnd|Cmd)_Alias\s", line):
                for part in re.split(r"\s:\s", line.split(maxsplit=1)[1]):
                    name, _, commands = part.partition("=")
                    members[name.strip()] = [each.strip() for each in COMMA.split(commands)]
    wide: frozenset[str] = frozenset()
    while True:
        more = frozenset(
            name for name, inside in members.items() if any(is_wide(c) or c in wide for c in inside)
        )
        if more == wide:
            return wide
        wide = more


def look(path: Path, text: str, wide_aliases: frozenset[str]) -> list[WideRule]:
    """Find the wide rules of one file, in order."""
    rules = []
    for first, last, line in logical(text):
        head, _, right = line.partition("=")
        if "NOPASSWD" not in right or re.match(r"\w+_Alias\b|Defaults\b", head):
            continue
        commands = [each for part in HOSTS.split(right) for each in _unasked(part)]
        wide = [each for each in commands if is_wide(each) or each in wide_aliases]
        only = NOPASSWD.fullmatch(right)
        alone = only is not None and len(wide) == len(COMMA.split(right)) and ":" not in only[1]
        if wide:
            rules.append(WideRule(path, first, last, line, alone))
    return rules


def _unasked(part: str) -> list[str]:
    """Give the commands of one host's part for which no password is asked, without their tags."""
    without_password = re.sub(r"(?<!NO)PASSWD\s*:.*?(?=NOPASSWD|$)", "", part)
    _, tag, right = without_password.partition("NOPASSWD")
    return [PREFIX.sub("", each, count=1).strip() for each in COMMA.split(tag + right)]


def files(etc: Path) -> list[Path]:
    """Name the files that sudo reads: of the directory none with a dot or a tilde at the end."""
    directory = etc / "sudoers.d"
    inside = sorted(directory.iterdir()) if directory.is_dir() else []
    named = [file for file in inside if "." not in file.name and not file.name.endswith("~")]
    return [file for file in [etc / "sudoers", *named] if file.is_file()]


def without(text: str, rules: list[WideRule]) -> str:
    """Give the file without these rules, every other byte as it was."""
    lines = text.split("\n")
    for rule in sorted(rules, key=lambda rule: rule.first, reverse=True):
        del lines[rule.first - 1 : rule.last]
    return "\n".join(lines)


def rewrite(path: Path, text: str) -> None:
    """Put ``text`` in the place of a sudoers file once visudo accepts it, with owner and mode.

    Errors: ``CalledProcessError`` with what visudo says; the file is then as it was.
    """
    fresh = path.with_name(f"{path.name}.gpud-new")  # sudo reads no name with a dot
    fresh.unlink(missing_ok=True)
    was = path.stat()
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
            os.fchown(descriptor, was.st_uid, was.st_gid)
            os.fchmod(descriptor, was.st_mode & 0o7777)
        subprocess.run(["visudo", "-cqf", fresh], check=True, capture_output=True, text=True)
        fresh.rename(path)
    finally:
        fresh.unlink(missing_ok=True)


def report(etc: Path, *, remove: bool) -> tuple[str, int]:
    """Describe each wide rule, and take away on request what stands alone; how many are left."""
    texts = {path: path.read_bytes().decode("utf-8", "surrogateescape") for path in files(etc)}
    wide_aliases = aliases(list(texts.values()))
    shown, left = [], 0
    for path, text in texts.items():
        rules = look(path, text, wide_aliases)
        going = [each for each in rules if each.alone and remove]
        try:
            if going:
                rewrite(path, without(text, going))
        except subprocess.CalledProcessError as error:
            shown.append(
                f"{path}: visudo refuses the file without the rule: {visible(error.stderr)}"
            )
            going = []
        for each in rules:
            where = f"{path}, line {each.first}"
            if each in going:
                shown.append(f"{where}: removed: {visible(each.line)}")
                continue
            left += 1
            shown.append(f"{where}: {visible(each.line)}\n{WHY}")
            if not each.alone:
                shown.append(
                    f"  It says more than that, so only a person may edit it: sudo visudo -f {path}"
                )
    return "\n".join(shown), left
