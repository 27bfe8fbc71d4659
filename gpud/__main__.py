"""``python -I -m gpud`` is ``gpud``."""

import contextlib
import os
import resource
import sys

ENOUGH = 256 << 20
"""Bytes of address space in which every command works, several times over."""


def main() -> int:
    """Run the command line; name the shell's limit on memory where that is what it failed by."""
    try:
        from gpud import cli

        return cli.main()
    except (MemoryError, ImportError, OSError, SystemError):  # what a library makes of no memory
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit == resource.RLIM_INFINITY or limit > ENOUGH:
            raise
        words = f"gpud: memory ran out: this shell allows {limit >> 20} MiB (ulimit -v)\n"
        os.write(2, f"{words}  fix: ulimit -v unlimited, or a new shell\n".encode())
        return 1


if __name__ == "__main__":
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as name:  # noqa: PTH123
        name.write("gpud")  # what ps and top show; the interpreter's name says nothing
    sys.exit(main())
