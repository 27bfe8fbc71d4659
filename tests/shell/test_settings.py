"""The hook among the odd settings of other people's shells, and in shells nobody looks at."""

from __future__ import annotations

import pytest

from tests.shell.test_hook import (
    BASH,
    FISH,
    HOME,
    PROMPT,
    RECORDS,
    STARTED,
    ZSH,
    Shell,
    asked,
    opened,
    running,
    settled,
)
from tests.shell.world import ROOT, World
from tests.waiting import until

HOOK = (ROOT / "bashrc.snippet").read_text()
ODD = {
    "errexit": "set -e",
    "nounset": "set -u",
    "pipefail": "set -eu -o pipefail",
    "noclobber": "set -o noclobber",
    "noglob": "set -f",
    "allexport": "set -a",
    "failglob": "shopt -s failglob",
    "nullglob": "shopt -s nullglob extglob dotglob nocasematch",
    "posix": "set -o posix",
    "IFS": "IFS=0123456789/",
    "aliases": "alias sudo='echo alias' read='echo alias' local='echo alias' set='echo alias' "
    "printf='echo alias' return='echo alias' trap='echo alias' builtin='echo alias'",
    "functions": "read() { echo function; }; sudo() { echo function; }; printf() { echo function; }"
    "; local() { echo function; }; trap() { echo function; }",
    "traps": "trap 'seen=1' DEBUG; trap 'echo err' ERR; trap : EXIT",
    "traps in functions": "set -o functrace; trap 'seen=1' DEBUG; trap : RETURN",
    "jobs": "set -b; set +m",
    "a variable of each name": "pid=x start=x stat=x said=x seen=x run=x kept=x; readonly field=x",
    "a home with a space": f"HOME='{HOME}/a  b *'",
    "another locale": "LC_ALL=de_DE.UTF-8 2>/dev/null",
    "no HOME": "unset HOME",
    "no PATH": "unset PATH",
}
STATE = (
    'echo "$_ [$?] [${!-}] $- $IFS $*"; declare -F; jobs; shopt -p; alias; trap;'
    "set | grep '^__gpud' || :"
)


@pytest.mark.parametrize("alive", [True, False], ids=["gpud runs", "it does not"])
@pytest.mark.parametrize("how", ODD)
def test_bash_is_left_as_it_was_whatever_its_owner_set(
    machine: World, how: str, *, alive: bool
) -> None:
    """Compare two shells that differ in the hook alone, from their first to their last byte."""
    if alive:
        running(machine)
    said = []
    with machine.covered("/opt/gpud/bin/gpud", RECORDS):
        for hook in (HOOK, ""):
            after = f"{STATE}\nPATH=/usr/bin:/bin\nPS1='{PROMPT}'\n"
            machine.own(f"{HOME}/rc", f"{ODD[how]}\n: last word\n{hook}\n{after}")
            shown = machine.window("bash", "--noprofile", "--rcfile", f"{HOME}/rc", "-i")
            before = shown.until(PROMPT)
            shown.send("\n")
            before += shown.until(PROMPT)
            shown.send("exit 7\n")
            status = shown.ended()
            assert status == 7
            said.append(before + shown.unread)
        if not alive:
            assert until(lambda: asked(machine), "a start") == ["up"]
        settled(machine)
        assert said[0] == said[1]
        assert len(asked(machine)) == (0 if alive else 1)


def test_zsh_keeps_its_options_names_and_status(machine: World) -> None:
    state = "functions | grep gpud || :; setopt; jobs; print -r -- $? ${field-none} ${run-none}"
    with machine.covered("/opt/gpud/bin/gpud", RECORDS):
        shown = []
        for snippet in ("deploy/zshrc.snippet", None):
            hook = (ROOT / snippet).read_text() if snippet else ""
            odd = "setopt ksh_arrays sh_word_split no_clobber err_return; alias read='echo alias'"
            machine.own(f"{HOME}/rc", f"{odd}\n{hook}\n{state}\n")
            done = machine.run("zsh", "-f", "-i", "-c", f"source {HOME}/rc; print end")
            shown.append((done.returncode, done.stdout))
        settled(machine)
    assert shown[0] == shown[1]
    assert shown[0][1].endswith("end\n")


@pytest.mark.parametrize(
    "line",
    [
        ["bash", "-c", "echo out"],
        ["bash", "-l", "-c", "echo out"],
        ["env", f"BASH_ENV={HOME}/.bashrc", "bash", "-c", "echo out"],
        ["env", f"ENV={HOME}/.bashrc", "sh", "-c", "echo out"],
        ["sh", f"{HOME}/.bashrc"],
        ["bash", "--posix", f"{HOME}/.bashrc"],
        ["zsh", "-c", "echo out"],
        ["fish", "-c", "echo out"],
    ],
    ids=lambda line: " ".join(line).replace("/", "."),
)
def test_a_shell_that_nobody_opened_does_nothing(machine: World, line: list[str]) -> None:
    for shell in (BASH, ZSH, FISH):
        shell.prepare(machine)
    machine.own(f"{HOME}/.bash_profile", ". ~/.bashrc\n")
    machine.own(f"{HOME}/.bashrc", f"{HOOK}\n")
    with machine.covered("/opt/gpud/bin/gpud", RECORDS):
        done = machine.run(*line)
        settled(machine)
        assert (done.returncode, done.stdout.strip()) in ((0, "out"), (0, ""))
        assert "gpud" not in done.stderr
        assert asked(machine) == []


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_the_probe_of_an_editor_starts_gpud_and_gets_no_word_mixed_in(
    machine: World, name: str
) -> None:
    for shell in (BASH, ZSH, FISH):
        shell.prepare(machine)
    machine.own(f"{HOME}/.bash_profile", ". ~/.bashrc\n")
    machine.own(f"{HOME}/.local/state/gpud/notice", "")
    script = "echo -MARK-; env | sort | head -1; echo -MARK-"
    with machine.covered("/opt/gpud/bin/gpud", RECORDS):
        plain = machine.run(name, "-i", "-l", "-c", script)
        assert plain.stdout.startswith("-MARK-\n")
        assert plain.stdout.endswith("-MARK-\n")
        assert until(lambda: asked(machine), "a start") == ["up"]
        settled(machine)
        running(machine)
        machine.write("/run/gpud/notice", "slower\n")
        quiet = machine.run(name, "-i", "-l", "-c", "echo -MARK-")
        assert quiet.stdout == "-MARK-\n"


def notice(machine: World, text: str) -> None:
    machine.write("/run/gpud/notice", text)


@pytest.fixture(params=[BASH, ZSH, FISH], ids=lambda shell: str(shell.name))
def shell(request: pytest.FixtureRequest, machine: World) -> Shell:
    """Give a shell beside a running gpud, with a place to remember what it showed."""
    chosen: Shell = request.param
    chosen.prepare(machine)
    running(machine)
    machine.own(f"{HOME}/.local/state/gpud/start.log", "")
    return chosen


def test_a_notice_is_shown_once_and_again_when_it_changes(machine: World, shell: Shell) -> None:
    notice(machine, "submission latency +38 % (12.4 -> 17.1 us)\nmore\n")
    assert opened(machine, shell) == "gpud: submission latency +38 % (12.4 -> 17.1 us)"
    assert opened(machine, shell) == ""
    notice(machine, "well again\n")
    assert opened(machine, shell) == "gpud: well again"
    notice(machine, "")
    assert opened(machine, shell) == ""
    notice(machine, "well again\n")
    assert opened(machine, shell) == "gpud: well again"


def test_a_notice_cannot_steer_the_terminal_and_is_cut_short(machine: World, shell: Shell) -> None:
    notice(machine, "a\x1b]0;title\x07\x1b[31mb\x9bc\x00\x7f\u202ed" + "x" * 1_000_000)
    shown = shell.terminal(machine)
    said = shown.until(PROMPT)
    shown.send("exit\n")
    shown.ended()
    [line] = [each for each in said.splitlines() if "gpud: " in each]
    line = line[line.index("gpud: ") :]
    assert line.startswith("gpud: a?]0;title??[31mb")
    assert len(line) <= 310
    assert all(" " <= letter <= "~" for letter in line)


def test_a_notice_of_nothing_but_zeroes_keeps_no_shell_waiting(
    machine: World, shell: Shell
) -> None:
    machine.root("truncate -s 1T /run/gpud/notice")  # bash would read on, zero for zero
    assert "\0" not in opened(machine, shell)


@pytest.mark.parametrize(
    "make",
    [
        "ln -s /etc/hostname /run/gpud/notice",
        "ln -s /run/gpud/fifo /run/gpud/notice; mkfifo /run/gpud/fifo",
        "mkfifo /run/gpud/notice",
        "echo secret >/run/gpud/notice; chmod 0 /run/gpud/notice",
        "true",
    ],
)
def test_what_is_no_readable_plain_file_is_no_notice(
    machine: World, shell: Shell, make: str
) -> None:
    machine.root(make)
    assert opened(machine, shell) == ""


@pytest.mark.parametrize(
    "spoil",
    [
        f"mkfifo -m 666 {HOME}/.local/state/gpud/notice",
        f"chmod 500 {HOME}/.local/state/gpud",
        f"touch {HOME}/.local/state/gpud/notice; chmod 400 {HOME}/.local/state/gpud/notice",
    ],
)
def test_what_cannot_be_remembered_is_not_shown(machine: World, shell: Shell, spoil: str) -> None:
    done = machine.run("sh", "-ec", spoil)
    assert done.returncode == 0, done.stderr
    notice(machine, "slower\n")
    assert opened(machine, shell) == ""


def test_where_there_is_no_place_to_remember_one_is_made_for_the_next_shell(
    machine: World, shell: Shell
) -> None:
    machine.root(f"rm -r {HOME}/.local/state")
    notice(machine, "slower\n")
    assert opened(machine, shell) == ""
    settled(machine)
    assert opened(machine, shell) == "gpud: slower"
    assert not machine.path(STARTED).exists()
