"""The settings file that is installed: every key, with the value that holds without it."""

from __future__ import annotations

from pathlib import Path

from gpud.core.settings import Settings, entries, parse

TEXT = Path(__file__).resolve().parents[2].joinpath("deploy/gpud.toml").read_text()


def uncommented() -> bytes:
    return "\n".join(
        line[1:] if line.startswith("#") and not line.startswith("# ") else line
        for line in TEXT.splitlines()
    ).encode()


def test_every_setting_is_in_it_with_its_default() -> None:
    assert parse(TEXT.encode(), {}) == parse(uncommented(), {}) == Settings()
    named = uncommented().decode()
    for key, _ in entries(Settings()):
        section, _, name = key.rpartition(".")
        if not section:
            continue  # where the tree begins and where the machine is looked at: for tests
        body = named.partition(f"[{section}]\n")[2].partition("\n[")[0]
        assert any(line.startswith(f"{name} = ") for line in body.splitlines()), key
