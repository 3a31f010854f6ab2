"""One way to look a name up in a table, and one error when it does not exist."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

T = TypeVar("T")


def suggestion(name: str, valid: Iterable[str]) -> str:
    """' (did you mean X?)' when some valid name is near, or has these initials, else ''.

    >>> suggestion("lr", ["beta", "learning_rate"])
    " (did you mean 'learning_rate'?)"
    """
    valid = list(valid)
    near = get_close_matches(str(name), valid, n=1, cutoff=0.5)
    near = near or [entry for entry in valid if "".join(word[:1] for word in entry.split("_")) == name]
    return f" (did you mean {near[0]!r}?)" if near else ""


def look_up(kind: str, table: Mapping[str, T], name: str) -> T:
    """`table[name]`, or a ValueError that lists the valid names and suggests the nearest."""
    if isinstance(name, str) and name in table:
        return table[name]
    raise ValueError(f"{kind} {name!r} is not known{suggestion(name, table)}; choose one of: {', '.join(table)}")
