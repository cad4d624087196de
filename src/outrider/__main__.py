"""Runs the `outrider` command: `python -m outrider`."""

import sys

from outrider.app import main

if __name__ == "__main__":
    sys.exit(main())
