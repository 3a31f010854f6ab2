"""`python -m fedtrue`."""

import sys

from fedtrue.cli import main

if __name__ == "__main__":
    sys.exit(main())
