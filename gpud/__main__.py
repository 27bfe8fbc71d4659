"""``python -I -m gpud`` is ``gpud``."""

import sys

from gpud.cli import main

sys.exit(main())
