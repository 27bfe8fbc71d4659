"""Writes the man page gpud(1) from the parser; a test fails while the committed page is older.

.venv/bin/python deploy/manpage.py

What the parser does not have (files, environment, examples) stands here. See man-pages(7).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import gpud
from gpud import arguments
from gpud.core.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PAGE: Final = Path(__file__).resolve().with_name("gpud.1")

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
    "gpud top": "Watch the GPU and its processes from second to second.",
    "gpud status --watch": "Look at everything until q is pressed.",
    "gpud history --probe launch --mode submit --since 7d": "Print what it took to submit a kernel "
    "in the last week.",
    "gpud logs -f --level warning": "Follow what goes wrong.",
    "gpud probe launch --repeat 5": "Measure now, five times.",
    "sudo gpud restart": "Start gpud anew; dockerd and its containers run on.",
}
SEE_ALSO: Final = ("docker(1)", "dockerd(8)", "nvidia-smi(1)", "wsl.conf(5)")


def page() -> str:
    """Return the page as roff."""
    return "\n".join(_lines()) + "\n"


def escaped(text: str) -> str:
    r"""Make text mean itself: no backslash, no hyphen that is a dash, no line that is a request."""
    for character, name in (("\\", "\\e"), ("-", "\\-"), ("'", "\\(aq"), ("`", "\\(ga")):
        text = text.replace(character, name)
    return f"\\&{text}" if text.startswith((".", "\\(aq")) else text


def _lines() -> Iterator[str]:
    description = arguments.DESCRIPTION
    name = f"{description[0].lower()}{description[1:].rstrip('.')}"  # a clause, for apropos(1)
    codes = {str(code): arguments.sentence(text) for code, text in arguments.EXIT_CODES.items()}
    yield f'.TH GPUD 1 "" "gpud {escaped(gpud.__version__)}" "User commands"'
    yield from (".SH NAME", f"gpud \\- {escaped(name)}")
    yield from (".SH SYNOPSIS", ".B gpud", escaped("[--home DIR] [--config FILE] COMMAND ..."))
    yield from (".SH DESCRIPTION", escaped(description), ".SH OPTIONS")
    yield from _argument(
        ["-h", "--help"], {"action": "help", "help": "show this help message and exit"}
    )
    for names, how in arguments.TOP:
        yield from _argument(names, {"help": "show program's version number and exit", **how})
    yield from (".SH COMMANDS", *_verbs(arguments.VERBS))
    yield from (".SH EXIT STATUS", *_listed(codes))
    yield from (".SH FILES", *_listed(FILES, font=".I"))
    yield from (".SH ENVIRONMENT", *_listed(ENVIRONMENT), ".SH EXAMPLES", *_listed(EXAMPLES))
    listen = escaped(Settings().http.listen)
    yield ".SH NOTES"
    yield f"The status page is at http://{listen}/ unless the settings say otherwise."
    yield ".SH SEE ALSO"
    marks = [","] * (len(SEE_ALSO) - 1) + [""]
    yield from (
        f".BR {title[:-3]} {title[-3:]}{mark}" for title, mark in zip(SEE_ALSO, marks, strict=True)
    )


def _verbs(verbs: Mapping[str, arguments.Verb], before: str = "gpud") -> Iterator[str]:
    for name, verb in verbs.items():
        flat = [argument for group in verb.groups for argument in group]
        words = [before, name, *(["[OPTION...]"] if any(_is_option(a.names) for a in flat) else [])]
        words += [_operand(*argument) for argument in flat if not _is_option(argument.names)]
        words += ["ACTION" if verb.required else "[ACTION]"] if verb.actions else []
        text = arguments.sentence(verb.text) if before == "gpud" else verb.text
        yield from (f".SS {escaped(' '.join(words))}", escaped(text))
        for names, how in flat:
            yield from _argument(names, how)
        yield from _verbs(verb.actions, f"{before} {name}")


def _argument(names: Sequence[str], how: Mapping[str, Any]) -> Iterator[str]:
    value = f" \\fI{escaped(_value(names, how))}\\fR" if _value(names, how) else ""
    head = f"\\fI{escaped(_operand(names, how))}\\fR"
    if _is_option(names):
        value = f" [{value.lstrip()}]" if how.get("nargs") == "?" else value
        head = ", ".join(f"\\fB{escaped(name)}\\fR" for name in names) + value
    yield from (".TP", head, escaped(arguments.sentence(how["help"] or "one of them")))


def _is_option(names: Sequence[str]) -> bool:
    return names[0].startswith("-")


def _operand(names: Sequence[str], how: Mapping[str, Any]) -> str:
    form = {"?": "[{}]", "*": "[{}...]", "+": "{}..."}.get(how.get("nargs", ""), "{}")
    return form.format(_value(names, how))


def _value(names: Sequence[str], how: Mapping[str, Any]) -> str:
    if how.get("action") in {"store_true", "help", "version"}:
        return ""
    return "|".join(how["choices"]) if how.get("choices") else str(how.get("metavar") or names[0])


def _listed(items: Mapping[str, str], *, font: str = ".B") -> Iterator[str]:
    for name, meaning in items.items():
        yield from (".TP", f"{font} {escaped(name)}", escaped(meaning))


if __name__ == "__main__":
    PAGE.write_text(page())
