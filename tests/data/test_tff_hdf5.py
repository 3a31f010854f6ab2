import os
from pathlib import Path

import numpy as np
import pytest
from generated import write_hdf5

from fedtrue.data import tff_hdf5

CLIENTS = {
    "b": {"snippets": [b"to be", b"or not"], "label": [1, 2]},
    "a": {"snippets": [b"\xc3\xa9tude"], "label": [3]},
}


def test_every_example_is_read_with_its_client(tmp_path):
    path = write_hdf5(tmp_path / "plays.h5", CLIENTS)
    read = [(client, f["snippets"], int(f["label"])) for client, f in tff_hdf5.read(path, ["snippets", "label"])]
    assert read == [("a", b"\xc3\xa9tude", 3), ("b", b"to be", 1), ("b", b"or not", 2)]


def test_images_keep_their_shape(tmp_path):
    images = np.arange(2 * 32 * 32 * 3).reshape(2, 32, 32, 3) % 256
    path = write_hdf5(tmp_path / "cifar.h5", {"0": {"image": images.astype(np.uint8)}})
    read = [example["image"] for _, example in tff_hdf5.read(path, ["image"])]
    np.testing.assert_array_equal(read, images)


@pytest.mark.parametrize("kept", [0, 5, 100, 0.5, 0.99])
def test_a_truncated_file_is_refused_in_one_line_and_not_changed(tmp_path, kept):
    path = write_hdf5(tmp_path / "plays.h5", CLIENTS)
    whole = path.read_bytes()
    cut = whole[: kept if kept > 1 else int(kept * len(whole))]
    path.write_bytes(cut)
    with pytest.raises(ValueError, match=r"plays\.h5 is (not|damaged)") as caught:
        list(tff_hdf5.read(path, ["snippets"]))
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == cut


def test_a_file_without_examples_is_refused(tmp_path):
    import h5py

    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["numbers"] = [1, 2]
    with pytest.raises(ValueError, match="has no group 'examples'"):
        list(tff_hdf5.read(tmp_path / "other.h5", ["snippets"]))


def test_a_missing_file_or_feature_is_named_with_the_existing_ones(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere\.h5 does not exist"):
        list(tff_hdf5.read(tmp_path / "nowhere.h5", ["x"]))
    path = write_hdf5(tmp_path / "plays.h5", CLIENTS)
    with pytest.raises(ValueError, match="client 'a' has no tokens; choose from: label, snippets"):
        list(tff_hdf5.read(path, ["tokens"]))


def test_features_of_unequal_length_are_refused(tmp_path):
    path = write_hdf5(tmp_path / "plays.h5", {"a": {"x": [1, 2], "y": [1]}})
    with pytest.raises(ValueError, match="client 'a' has features of unequal length"):
        list(tff_hdf5.read(path, ["x", "y"]))


@pytest.mark.data
@pytest.mark.parametrize("split, snippets", [("train", 16_068), ("test", 2_356)])
def test_the_published_shakespeare_has_715_clients_and_all_its_snippets(split, snippets):
    path = Path(os.environ.get("FEDTRUE_DATA", "")) / "shakespeare" / f"shakespeare_{split}.h5"
    if "FEDTRUE_DATA" not in os.environ or not path.exists():
        pytest.skip(f"set FEDTRUE_DATA to the folder that holds shakespeare/{path.name}")
    clients = [client for client, _ in tff_hdf5.read(path, ["snippets"])]
    assert (len(set(clients)), len(clients)) == (715, snippets)
