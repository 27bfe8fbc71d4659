"""``python -I -m gpud.agent --home DIR [--config FILE]``: run until told to stop."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
from pathlib import Path

from gpud import settings_files
from gpud.core.errors import ConfigError
from gpud.core.report import FIX
from gpud.core.settings import config_path
from gpud.core.text import escaped


def main() -> int:
    """Run the agent; 2 for settings that cannot be used."""
    parser = argparse.ArgumentParser(prog="gpud.agent")
    parser.add_argument("--home", required=True)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--check", action="store_true", help="read the settings and end")
    arguments = parser.parse_args()
    path = arguments.config or Path(config_path(arguments.home))
    try:
        settings = settings_files.read_by_agent(path, os.environ, home=arguments.home)
    except (ConfigError, OSError) as error:
        fix = getattr(error, "fix", None)
        words = f"{error}{FIX}{fix}" if fix else str(error)  # the last line is what root reports
        print(f"gpud: {escaped(words)}", file=sys.stderr)
        return 2
    if arguments.check:
        return 0
    # structlog would take rich with it, for tracebacks on a terminal that the agent never draws:
    # 3 MB of the 64 and 60 modules. None is how an import is told that there is nothing.
    sys.modules["rich"] = None  # type: ignore[assignment]
    gc.disable()  # compose enables it: a search for cycles among what is imported finds few
    from gpud.agent import compose

    # What is kept is written and summed up in a thread. Python lets it compute for 5 ms each time
    # the loop asks to go on, and a scrape asks several times.
    sys.setswitchinterval(0.0005)
    return asyncio.run(compose.run(settings, path))


if __name__ == "__main__":
    sys.exit(main())
