"""What is committed: a top level one can read, and nothing about one particular machine."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOP = {
    *("gpud", "deploy", "tests", "docs", ".ci", "bashrc.snippet", "sudoers.snippet"),
    *("pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", ".gitignore"),
    *("LICENSE", "SECURITY.md"),
}
OPTIONAL = {"benchmarks"}

# Split, so that this file is not its own finding.
FOREIGN = re.compile(
    "|".join(
        [
            r"(?<![\w.-])/" + r"work/",
            r"/tmp/" + r"helpers",
            r"/home/" + r"(?!gpud\b|user\d*\b|someone\b)\w+/",
            r"simple/" + r"\s*$",
            r"(?:index|extra-index)-" + r"url\s*=",
            r"https?://[\w.-]*" + r"(?:pypi|artifactory|artifactregistry|pkg\.dev)",
        ]
    ),
    re.MULTILINE,
)


def committed() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in listed.stdout.split("\0") if name]


def test_the_top_level_holds_what_the_design_says_and_nothing_else() -> None:
    top = {name.split("/")[0] for name in committed()}
    assert top - OPTIONAL == TOP


def test_no_committed_file_names_a_machine_or_a_package_index() -> None:
    found = []
    for name in committed():
        path = ROOT / name
        if not path.is_file():  # deleted here and not yet committed
            continue
        text = path.read_text(errors="replace")
        found += [f"{name}: {match[0].strip()}" for match in FOREIGN.finditer(text)]
    assert found == []
