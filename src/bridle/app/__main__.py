"""`python -m bridle.app`: the same as `bridle`."""

import sys

from bridle.app import main

if __name__ == "__main__":
    sys.exit(main())
