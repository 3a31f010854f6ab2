"""Tag prediction on Stack Overflow, the paper's third task: 10,000 words, 500 tags, logistic regression."""

from collections.abc import Iterator

from jax.typing import DTypeLike

from fedtrue.data.cache import cached
from fedtrue.data.client_data import ClientData
from fedtrue.data.columns import Example
from fedtrue.data.locations import find
from fedtrue.data.vocabulary import tag_counts, word_counts
from fedtrue.precision import compute_dtype
from fedtrue.spec import named
from fedtrue.tasks.paper_rates import STACKOVERFLOW_TAGS
from fedtrue.tasks.stackoverflow_words import HDF5_NAMES, WORD_COUNTS
from fedtrue.tasks.tag_prediction import ids_by_name, known_ids, tag_schema, tag_task
from fedtrue.tasks.task import Task, check_positive
from fedtrue.tasks.tff_files import Split, find_split, first_examples

TAG_COUNTS = ("stackoverflow.tag_count", "stackoverflow.tag_count.tar.bz2")
CONVERSION_VERSION = 1  # increase it when the same file gives other rows


@named("task", defaults=False)
def stackoverflow_tags(
    *, dtype: DTypeLike | None = None, words: int = 10_000, tags: int = 500, examples_per_client: int = 1000
) -> Task:
    """Stack Overflow: predict the tags of a post from the words of its text and title; unknown words are dropped.

    Train, validation and test are different users, as in TFF's splits. The first call converts the files.

    Args:
        dtype: of matrix products, "float32" or "bfloat16"; by default float32 on CPUs, bfloat16 on accelerators.
        words: size of the vocabulary.
        tags: number of tags.
        examples_per_client: posts per train user, the first ones.

    Returns:
        The task. Without its data files it raises an error that says how to download them.
    """
    check_positive(examples_per_client=examples_per_client)
    splits = {name: find_split("stackoverflow", name, file) for name, file in HDF5_NAMES.items()}
    words_path, tags_path = find("stackoverflow", *WORD_COUNTS), find("stackoverflow", *TAG_COUNTS)
    word_names, tag_names = list(word_counts(words_path, words)), list(tag_counts(tags_path, tags))
    word_ids = {name.encode(): word for name, word in ids_by_name(word_names).items()}
    tag_ids = {name.encode(): tag for name, tag in ids_by_name(tag_names).items()}

    def load_split(name: str, max_examples: int | None) -> ClientData:
        return cached(
            f"stackoverflow-tags-{name}",
            [splits[name].path, words_path, tags_path],
            CONVERSION_VERSION,
            {"split": name, "words": words, "tags": tags, "examples_per_client": max_examples},
            tag_schema(words, tags),
            lambda: _posts(splits[name], word_ids, tag_ids, max_examples),
        )

    return tag_task(
        name="stackoverflow_tags",
        words=word_names,
        tags=tag_names,
        train=load_split("train", examples_per_client),
        validation=load_split("heldout", None),
        test=load_split("test", None),
        rounds=1500,
        recommended=STACKOVERFLOW_TAGS,
        source=f"TFF's Stack Overflow, the paper's own data ({splits['train'].path.name}, {words_path.name}, "
        f"{tags_path.name})",
        dtype=compute_dtype(dtype),
    )


def _posts(
    split: Split, word_ids: dict[bytes, int], tag_ids: dict[bytes, int], max_examples: int | None
) -> Iterator[Example]:
    for client, post in first_examples(split.read(["tokens", "title", "tags"]), max_examples):
        words = post["tokens"].split() + post["title"].split()
        yield client, {"words": known_ids(words, word_ids), "tags": known_ids(post["tags"].split(b"|"), tag_ids)}
