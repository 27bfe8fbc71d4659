"""The man page gpud(1), made from the parser: what can be typed is said in one place only.

What the parser does not know (files, environment, examples) stands here. See man-pages(7).
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

import gpud
from gpud.core import settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FILES: Final = {
    "/etc/gpud/gpud.toml": "The settings. gpud config check says whether they can be read.",
    "/etc/gpud/secrets.toml": "Hashes of passwords, and tokens: for root and gpud's agent alone.",
    "/opt/gpud": "The program, which only root can change.",
    "/var/lib/gpud": "The history of all runs, and what is usual.",
    "/run/gpud": "What runs now: root.json and agent.json, readable by everybody.",
    "/var/log/gpud": "The logs that gpud logs reads.",
    ".gpud": "All of it in one place, for a run out of a checkout.",
}
ENVIRONMENT: Final = {
    "GPUD_HOME": "Where the tree of files begins, as --home.",
    "GPUD_SECTION__KEY": "A setting of the file, such as GPUD_HTTP__LISTEN. Never read by root "
    "from whoever calls sudo.",
    "NO_COLOR": "If it is not empty, nothing is coloured unless --color=always says so.",
    "TERM": "A dumb terminal gets no colour, and no characters beyond ASCII.",
    "LC_ALL, LC_CTYPE, LANG": "Without UTF-8 in the first that is set, bars are drawn in ASCII.",
    "COLUMNS, LINES": "The room to draw in, in place of what the terminal says.",
}
EXAMPLES: Final = {
    "gpud status --watch": "Look at everything until q is pressed.",
    "gpud history --probe launch --mode submit --since 7d": "Print what it took to submit a kernel "
    "in the last week.",
    "gpud logs -f --level warning": "Follow what goes wrong.",
    "gpud probe launch --repeat 5": "Measure now, five times.",
    "sudo gpud restart": "Start gpud anew; dockerd and its containers run on.",
}
SEE_ALSO: Final = ("docker(1)", "dockerd(8)", "nvidia-smi(1)", "wsl.conf(5)")


def drawn(parser: argparse.ArgumentParser, codes: Mapping[int, str]) -> str:
    """Give the page as roff. ``codes`` are the exit codes and what they mean."""
    return "\n".join(_lines(parser, codes)) + "\n"


def escaped(text: str) -> str:
    r"""Make text mean itself: no backslash, no hyphen that is a dash, no line that is a request."""
    shown = (
        text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    )
    return f"\\&{shown}" if shown.startswith((".", "\\(aq")) else shown


def _lines(parser: argparse.ArgumentParser, codes: Mapping[int, str]) -> Iterator[str]:
    yield f'.TH GPUD 1 "" "gpud {escaped(gpud.__version__)}" "User commands"'
    yield from (".SH NAME", f"gpud \\- {escaped(_name(parser))}")
    yield from (".SH SYNOPSIS", ".B gpud", escaped("[--home DIR] [--config FILE] COMMAND ..."))
    yield from (".SH DESCRIPTION", escaped(parser.description or ""))
    yield ".SH OPTIONS"
    for action in parser._actions:  # noqa: SLF001  # argparse shows them to nobody else either
        if action.option_strings:
            yield from _option(action)
    yield ".SH COMMANDS"
    yield from _commands(parser, "")
    yield ".SH EXIT STATUS"
    yield from _listed(
        {str(code): f"{meaning[0].upper()}{meaning[1:]}." for code, meaning in codes.items()}
    )
    yield ".SH FILES"
    yield from _listed(FILES, font=".I")
    yield ".SH ENVIRONMENT"
    yield from _listed(ENVIRONMENT)
    yield ".SH EXAMPLES"
    for command, meaning in EXAMPLES.items():
        yield from (".TP", f".B {escaped(command)}", escaped(meaning))
    yield ".SH NOTES"
    listen = escaped(settings.Settings().http.listen)
    yield f"The status page is at http://{listen}/ unless the settings say otherwise."
    yield ".SH SEE ALSO"
    yield from (f".BR {name[:-3]} {name[-3:]}{mark}" for name, mark in _marked(SEE_ALSO))


def _name(parser: argparse.ArgumentParser) -> str:
    """Give one clause without its capital and its full stop, as apropos(1) shows it."""
    text = (parser.description or "").rstrip(".")
    return f"{text[:1].lower()}{text[1:]}"


def _commands(parser: argparse.ArgumentParser, before: str) -> Iterator[str]:
    for action in parser._actions:  # noqa: SLF001  # likewise
        if not isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  # likewise
            continue
        for name, verb in action.choices.items():
            yield from _command(f"{before}{name}", verb)


def _command(name: str, verb: argparse.ArgumentParser) -> Iterator[str]:
    words = [f"gpud {name}"]
    actions = [a for a in verb._actions if not isinstance(a, argparse._HelpAction)]  # noqa: SLF001
    below = [a for a in actions if isinstance(a, argparse._SubParsersAction)]  # noqa: SLF001
    plain = [a for a in actions if a not in below]
    words += ["[OPTION...]"] if any(a.option_strings for a in plain) else []
    words += [_operand(a) for a in plain if not a.option_strings]
    words += ["ACTION" if below[0].required else "[ACTION]"] if below else []
    yield f".SS {escaped(' '.join(words))}"
    yield escaped(verb.description or "")
    for action in plain:
        if action.help or action.choices:
            yield from _option(action)
    yield from _commands(verb, f"{name} ")


def _option(action: argparse.Action) -> Iterator[str]:
    value = _value(action)
    flags = [f"\\fB{escaped(flag)}\\fR" for flag in action.option_strings]
    if flags:
        given = f" \\fI{escaped(value)}\\fR" if value else ""
        head = ", ".join(flags) + (f" [\\fI{escaped(value)}\\fR]" if action.nargs == "?" else given)
    else:
        head = f"\\fI{escaped(_operand(action))}\\fR"
    text = (action.help or "One of them.") % {"prog": "gpud", "default": action.default}
    yield from (".TP", head, escaped(f"{text[0].upper()}{text[1:]}."))


def _operand(action: argparse.Action) -> str:
    name = _value(action)
    if action.nargs == "?":
        return f"[{name}]"
    return {"*": f"[{name}...]", "+": f"{name}..."}.get(str(action.nargs), name)


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if action.choices is not None:
        return "|".join(map(str, action.choices))
    return str(action.metavar or action.dest.upper())


def _listed(items: Mapping[str, str], *, font: str = ".B") -> Iterator[str]:
    for name, meaning in items.items():
        yield from (".TP", f"{font} {escaped(name)}", escaped(meaning))


def _marked(names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Give each name with the comma after it, the last with none."""
    yield from ((name, ",") for name in names[:-1])
    yield names[-1], ""
