"""Writes the man page gpud(1) from the parser; a test says when that is due.

.venv/bin/python deploy/manpage.py
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gpud import arguments
from gpud.term import manpage

PAGE = Path(__file__).resolve().with_name("gpud.1")

if __name__ == "__main__":
    PAGE.write_text(manpage.drawn(arguments.parser(), arguments.EXIT_CODES))
