"""Manifest of an installation: one line for everything that was made, written before it is made."""

from __future__ import annotations

from gpud.install.places import CONFIG_DIR, MANIFEST, fresh


def lines() -> list[str]:
    """Return all lines in their order; none where there is no manifest."""
    try:
        return MANIFEST.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []


def values(kind: str) -> list[str]:
    """Return the values of one kind."""
    return [line.partition(" ")[2] for line in lines() if line.startswith(f"{kind} ")]


def note(line: str) -> None:
    """Add a line that is not there yet."""
    if not CONFIG_DIR.is_dir():
        CONFIG_DIR.mkdir(0o755)
        _append(f"dir {CONFIG_DIR}")
    if line not in lines():
        _append(line)


def forget(line: str) -> None:
    """Take a line out; an interruption leaves the manifest as it was."""
    kept = [each for each in lines() if each != line]
    text = "".join(f"{each}\n" for each in kept)
    new = fresh(MANIFEST)
    new.write_text(text, encoding="utf-8", errors="surrogateescape")
    new.replace(MANIFEST)


def _append(line: str) -> None:
    with MANIFEST.open("a", encoding="utf-8", errors="surrogateescape") as file:
        file.write(f"{line}\n")
