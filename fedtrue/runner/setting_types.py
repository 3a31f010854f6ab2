"""Refuses values of settings that have a wrong type, before anything is built from them."""

from collections.abc import Mapping
from typing import Any

import msgspec

from fedtrue.spec import FACTORIES, option_kind, option_table

SCHEDULE = "schedule"  # the kind of part that a number may stand for


def check_type(where: str, key: str, value: Any, hint: Any) -> Any:
    """The value, if it has the type of the field."""
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError:
        raise ValueError(f"{where}: {key} takes {_type_name(hint)}, not {value!r}") from None


def _type_name(hint: Any) -> str:
    """'int or list[int]'."""
    named = hint.__name__ if isinstance(hint, type) else str(hint)
    return " or ".join(part.strip() for part in named.split("|") if part.strip() != "None")


def check_table(where: str, key: str, value: Any, example: str) -> Mapping[str, Any]:
    """The value, if it is a table."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{where}: {key} takes a table, e.g. {example}, not {value!r}")
    return value


def check_option(where: str, key: str, value: Any) -> None:
    """Refuses a value of an option of the method, or of one of its parts (`client.beta1`), that it cannot have."""
    option = key.rpartition(".")[2]
    kind = option_kind(option)
    if isinstance(value, Mapping) and kind is not None:
        if not isinstance(value.get("name", ""), str):
            raise ValueError(f"{where}: {key}.name takes {_example(kind)}, not {value['name']!r}")
        for name, entry in value.items():
            if name != "name":
                check_option(where, f"{key}.{name}", entry)
    elif isinstance(value, bool) and _takes_number(option):
        raise ValueError(f"{where}: {key} takes a number, e.g. {key} = 0.1, not {str(value).lower()}")
    elif kind not in (None, SCHEDULE) and not isinstance(value, str | None):
        raise ValueError(f"{where}: {key} takes {_example(kind)}, or a table with a name and options, not {value!r}")


def _example(kind: str) -> str:
    return f"a name, e.g. {list(FACTORIES[kind])[:2][-1]!r}"


def _takes_number(option: str) -> bool:
    """Whether no part has an option of this name that is true or false, and some part has it."""
    tables = [option_table(factory) for factories in FACTORIES.values() for factory in factories.values()]
    entries = [table[option] for table in tables if option in table]
    is_switch = any(isinstance(entry.default, bool) or entry.annotation is bool for entry in entries)
    return bool(entries) and not is_switch
