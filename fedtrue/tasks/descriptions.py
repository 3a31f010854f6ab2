"""Tag prediction on the descriptions of Debian packages, with their maintainers as clients."""

from pathlib import Path

from jax.typing import DTypeLike

from fedtrue.data import json_lines
from fedtrue.data.locations import find
from fedtrue.precision import compute_dtype
from fedtrue.spec import named
from fedtrue.tasks.tagged_texts import tagged_text_task
from fedtrue.tasks.task import Task
from fedtrue.tasks.texts import SplitFractions, TextSource

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
    """Debian packages: predict the tags from title and description. Packages without a tag are skipped.

    Args:
        path: any file of JSON lines with `client`, `title`, `text` and `tags`; by default Debian's descriptions.
        words: size of the vocabulary, at most; words are counted on train maintainers only.
        tags: number of tags, at most, likewise.
        longest: words of a description that are kept.
        validation: fraction of the maintainers to hold out for tuning.
        test: fraction to test on. A maintainer's split depends on a hash of the id and `seed`.
        seed: of the splits.
        dtype: of matrix products, "float32" or "bfloat16"; by default float32 on CPUs, bfloat16 on accelerators.

    Returns:
        The task. Without its data file it raises an error that says how to get it.
    """
    fractions = SplitFractions(validation, test, seed).check()
    file = Path(path) if path is not None else find("debian", FILE, FILE.removesuffix(".xz"))
    return tagged_text_task(
        TextSource("descriptions", file, json_lines.read, fractions),
        words=words,
        tags=tags,
        longest=longest,
        dtype=compute_dtype(dtype),
        described_as="Debian package descriptions" if path is None else "descriptions",
    )
