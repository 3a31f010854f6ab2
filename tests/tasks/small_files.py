"""Small files of every data set in its published layout, with a few clients each, written into one folder."""

import gzip
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "data"))
import layouts
from generated import encode_example, stackoverflow_message, write_hdf5, write_sqlite

WORDS = [f"word{rank}" for rank in range(40)]
TAGS = [f"tag{rank}" for rank in range(8)]


def write_all(root: Path) -> None:
    for write in (shakespeare, stackoverflow, cifar100, cifar10, mnist, stackexchange, debian):
        folder = root / write.__name__
        folder.mkdir(parents=True)
        write(folder)


def shakespeare(folder: Path) -> None:
    speeches = [b"To be, or not to be: that is the question.", b"Words, words, words. " * 9, b"Adieu!"]
    for split, kept in (("train", slice(0, 3)), ("test", slice(1, 3))):
        clients = {f"PLAY_ROLE{n}": {"snippets": speeches[kept] * (1 + n % 2)} for n in range(4)}
        write_hdf5(folder / f"shakespeare_{split}.h5", clients)


def stackoverflow(folder: Path, sentences: int = 3) -> None:
    write_sqlite(folder / "stackoverflow.sqlite", _stackoverflow_rows(sentences))
    (folder / "stackoverflow.word_count").write_text("".join(f"{word} {99 - n}\n" for n, word in enumerate(WORDS)))
    counts = {tag: 99 - rank for rank, tag in enumerate(TAGS)}
    (folder / "stackoverflow.tag_count").write_text(json.dumps(counts))


def _stackoverflow_rows(sentences: int) -> Iterator[tuple[str, str, bytes]]:
    generator = np.random.default_rng(0)
    for split in ("train", "heldout", "test"):
        for client in range(3):
            for _ in range(sentences + client):
                text = " ".join(generator.choice([*WORDS, "rare"], size=int(generator.integers(1, 30))))
                tags = "|".join(generator.choice([*TAGS, "rare"], size=2, replace=False))
                yield split, f"{split}_{client}", stackoverflow_message(text.encode(), tags=tags.encode())


def cifar100(folder: Path, labels: Sequence[int] = (0, 99, 50)) -> None:
    generator = np.random.default_rng(0)
    rows = [
        (split, f"{split}_{client}", _cifar_message(generator, label))
        for split in ("train", "test")
        for client in range(3)
        for label in labels
    ]
    write_sqlite(folder / "cifar100.sqlite", rows)


def _cifar_message(generator: np.random.Generator, label: int) -> bytes:
    image = generator.integers(256, size=32 * 32 * 3).tolist()
    return encode_example({"coarse_label": [0], "image": image, "label": [label]})


def cifar10(folder: Path) -> None:
    generator = np.random.default_rng(0)
    names = [*(f"data_batch_{batch}.bin" for batch in range(1, 6)), "test_batch.bin"]
    members = {
        f"cifar-10-batches-bin/{name}": layouts.cifar_records(
            np.arange(10)[:, None], generator.integers(256, size=(10, 32, 32, 3)).astype(np.uint8)
        )
        for name in names
    }
    (folder / "cifar-10-binary.tar.gz").write_bytes(gzip.compress(layouts.tar(members)))


def mnist(folder: Path, images: int = 12) -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(images) % 10
    for split, name, first_writer in (("train", "train", 100), ("test", "t10k", 200)):
        writers = np.zeros((images, 8), np.int32)
        writers[:, 0], writers[:, 2] = labels, first_writer + np.arange(images) % 3
        files = {
            f"{name}-images-idx3-ubyte": generator.integers(256, size=(images, 28, 28)).astype(np.uint8),
            f"{name}-labels-idx1-ubyte": labels.astype(np.uint8),
            f"qmnist-{split}-labels-idx2-int": writers,
        }
        for file_name, array in files.items():
            (folder / f"{file_name}.gz").write_bytes(gzip.compress(layouts.idx(array)))


def stackexchange(folder: Path, users: int = 30) -> None:
    rows = [
        f'<row Id="{user}" PostTypeId="1" OwnerUserId="{user}" Score="1" CreationDate="2020-01-01" '
        f'Title="word{user % 7} and yeast" Body="&lt;p&gt;Is it word{user % 5}? It is common.&lt;/p&gt;" '
        f'Tags="|tag{user % 3}|tag{user % 4}|" />'
        for user in range(users)
    ]
    (folder / "beer.Posts.xml").write_text("<posts>\n" + "\n".join(rows) + "\n</posts>\n")


def debian(folder: Path, clients: int = 30) -> None:
    records = [
        {"client": f"c{client}", "title": f"word{client % 7}", "text": "A common tool.", "tags": [f"tag{client % 3}"]}
        for client in range(clients)
    ]
    lines = [*records, {"client": "untagged", "title": "none", "text": "", "tags": []}]
    (folder / "descriptions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
