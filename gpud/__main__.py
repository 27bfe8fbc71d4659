"""``python -I -m gpud`` is ``gpud``."""

import contextlib
import sys

from gpud.cli import main

if __name__ == "__main__":
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as name:  # noqa: PTH123
        name.write("gpud")  # what ps and top show; the interpreter's name says nothing
    sys.exit(main())
