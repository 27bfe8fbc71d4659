"""Run gpud's probe child from this checkout, whatever else is installed.

    python3 -P child.py --list | --serve

``python -I -m gpud.child`` finds an installed gpud only; what is checked is the code beside this.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gpud.child.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
