"""Types of arguments. Imports nothing heavy: `fedtrue --help` loads it."""

import argparse
from pathlib import Path


def path(text: str) -> Path:
    """A path that is given; an empty one, as an unset variable of a shell leaves it, would be this folder."""
    if not text.strip():
        raise argparse.ArgumentTypeError("is empty: give a path")
    return Path(text)
