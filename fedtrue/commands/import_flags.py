"""The flags of `fedtrue data import`. Imports nothing heavy: `fedtrue --help` loads it."""

import argparse

from fedtrue.commands.arguments import path


def add_import_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command to its parser."""
    parser.description = (
        "Import a data set from files; then `fedtrue run NAME` trains on it. With the name stackexchange: the "
        "Posts.xml of a Stack Exchange dump."
    )
    parser.add_argument("name", metavar="NAME", help="name of the data set; or stackexchange")
    parser.add_argument("files", type=path, nargs="+", metavar="FILE", help="files, or a folder of them")
    parser.add_argument(
        "--format",
        metavar="NAME",
        help="csv, jsonl, parquet, huggingface, leaf, images, npz or tff (default: by the name of the file)",
    )
    for name, text in {
        "client": "column that says whose row it is (default: that of the format)",
        "label": "column with the class of a row, or a number to predict (default: that of the format)",
        "image": "column of images: numbers, bytes or paths of image files (default: none)",
        "text": "column of texts, to predict the next word, --tags or --label (default: none)",
        "tags": "column of tags of each text (default: none)",
        "coarse": "column of coarse labels, for --partition pachinko (default: none)",
    }.items():
        parser.add_argument(f"--{name}", metavar="COLUMN", help=text)
    for name, text in {
        "features": "numeric columns to learn from (default: all without another role)",
        "ignore": "columns that are not used (default: none)",
        "image-shape": "HEIGHT,WIDTH[,CHANNELS]: resize images to it; features are pixels (default: as they are)",
    }.items():
        parser.add_argument(f"--{name}", metavar="LIST", help=text)
    parser.add_argument("--words", type=int, metavar="INT", help="most frequent words that are known (default: 10,000)")
    parser.add_argument(
        "--test",
        type=path,
        nargs="+",
        metavar="FILE",
        help="files to test on (default: --test-fraction of each client)",
    )
    parser.add_argument(
        "--test-fraction",
        type=float,
        metavar="FLOAT",
        help="of each client's examples, drawn at random, to test on (default: 0.1, or 0 if there is test data)",
    )
    partition = parser.add_argument_group("for data without clients")
    partition.add_argument(
        "--partition",
        metavar="NAME",
        help="iid, dirichlet, shards, power_law, dirichlet_sizes or pachinko (default: clients from --client)",
    )
    partition.add_argument("--clients", type=int, metavar="INT", help="number of clients (default: none)")
    for name, (kind, text) in {
        "alpha": (float, "of the Dirichlet distribution (default: none; dirichlet_sizes 0.5)"),
        "shards-per-client": (int, "most labels a client holds (default: 2)"),
        "exponent": (float, "of the power law (default: 1)"),
        "alpha-coarse": (float, "of pachinko's coarse labels (default: 0.1)"),
        "alpha-fine": (float, "of pachinko's fine labels (default: 10)"),
        "examples-per-client": (int, "of pachinko (default: as many as there are)"),
    }.items():
        partition.add_argument(f"--{name}", type=kind, metavar=kind.__name__.upper(), help=text)
    parser.add_argument(
        "--seed", type=int, default=0, metavar="INT", help="of partition and test examples (default: %(default)s)"
    )
    parser.add_argument("--replace", action="store_true", help="replace a data set of the same name")
    parser.add_argument("--site", metavar="NAME", help="for stackexchange: name of the site (default: from the file)")
