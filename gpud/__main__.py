"""``python -I -m gpud`` is ``gpud``."""

import contextlib
import os
import sys

from gpud.cli import main

if __name__ == "__main__":
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as name:  # noqa: PTH123
        name.write("gpud")  # what ps and top show; the interpreter's name says nothing
    code = main()
    with contextlib.suppress(OSError, ValueError):  # what can be reported of it main has reported
        sys.stdout.flush()
    os._exit(code)  # to take the interpreter down would be a tenth of `gpud status`
