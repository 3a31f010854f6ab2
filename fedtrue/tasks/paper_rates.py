"""The best hyper-parameters from the paper's table, as (log10 client rate, log10 server rate, log10 server ε)."""

from collections.abc import Mapping

from fedtrue.tasks.task import Rates

Recommended = Mapping[tuple[str, str, str], Rates]
Logs = tuple[float, float] | tuple[float, float, float]

COLUMNS = (("sgd", "none"), ("adagrad", "none"), ("adagrad", "local"), ("adagrad", "joint"))  # (client, correction)


def _recommended(rows: Mapping[str, tuple[Logs, Logs, Logs, Logs]]) -> Recommended:
    return {
        (server, client, correction): Rates(*(10.0**log for log in logs))
        for server, row in rows.items()
        for (client, correction), logs in zip(COLUMNS, row)
    }


STACKOVERFLOW_WORDS = _recommended(
    {
        "sgd": ((-0.5, 0), (-0.5, 0), (0, 0.5), (-0.5, 0)),
        "adagrad": ((-0.5, -1.5, -3), (-0.5, -1, -5), (-0.5, -1, -5), (-0.5, -1, -7)),
        "adam": ((-0.5, -1.5, -5), (-0.5, -1.5, -3), (-1, -1.5, -5), (-1, -1.5, -5)),
    }
)
SHAKESPEARE = _recommended(
    {
        "sgd": ((0, 0), (-0.5, -0.5), (-0.5, 2), (-0.5, 0)),
        "adagrad": ((0.5, -1, -1), (0, -1, -3), (-0.5, -1, -5), (-0.5, -0.5, -1)),
    }
)
STACKOVERFLOW_TAGS = _recommended(
    {
        "sgd": ((2.5, 0), (1.5, 0), (1.5, 1.5), (1.5, 0)),
        "adagrad": ((0.5, 1, -5), (-0.5, 1, -5), (-0.5, 1, -7), (-0.5, 1, -5)),
        "adam": ((1.5, -0.5, -5), (1, -0.5, -5), (0.5, -0.5, -7), (1, -0.5, -5)),
    }
)
