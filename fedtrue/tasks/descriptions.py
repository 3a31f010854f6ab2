"""Tag prediction on the descriptions of Debian's packages, their maintainers as clients."""

from pathlib import Path

from jax.typing import DTypeLike

from fedtrue.data import json_lines
from fedtrue.data.locations import find
from fedtrue.precision import compute_dtype
from fedtrue.spec import named
from fedtrue.tasks.tagged_texts import tagged_text_task
from fedtrue.tasks.task import Task
from fedtrue.tasks.texts import Parts, TextSource

FILE = "descriptions.jsonl.xz"


@named("task", defaults=False)
def descriptions(
    *,
    path: str | Path | None = None,
    words: int = 10_000,
    tags: int = 500,
    longest: int = 500,
    validation: float = 0.1,
    test: float = 0.1,
    seed: int = 0,
    dtype: DTypeLike | None = None,
) -> Task:
    """A package's tags from the first `longest` words of its title and description; those without a tag are left out.

    `path` is any file of JSON lines with `client`, `title`, `text` and `tags`. Maintainers are divided into train,
    `validation` and `test` by a hash of their id and `seed`; the vocabulary is counted on train maintainers only.
    """
    parts = Parts(validation, test, seed).check()
    file = Path(path) if path is not None else find("debian", FILE, FILE.removesuffix(".xz"))
    return tagged_text_task(
        TextSource("descriptions", file, json_lines.read, parts),
        words=words,
        tags=tags,
        longest=longest,
        dtype=compute_dtype(dtype),
        described_as="Debian package descriptions" if path is None else "descriptions",
    )
