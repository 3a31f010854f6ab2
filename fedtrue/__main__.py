"""`python -m fedtrue`."""

import sys

from fedtrue.cli import main

sys.exit(main())
