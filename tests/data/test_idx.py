"""Laws of the IDX source."""

import layouts
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedtrue.data import idx

LABELS = np.array([5, 0, 4, 1], np.uint8)
WRITERS = [2154, 0, 2154, 7]


def mnist_files(folder, suffix="", labels=LABELS, writers=WRITERS):
    """(images, labels, writers) paths of four digits in MNIST's and QMNIST's layouts."""
    images = np.arange(4 * 28 * 28).reshape(4, 28, 28).astype(np.uint8)
    extended = np.zeros((len(writers), 8), np.int32)
    extended[: len(labels), 0], extended[:, 2] = labels[: len(writers)], writers
    return (
        layouts.write(folder / f"train-images-idx3-ubyte{suffix}", layouts.idx(images)),
        layouts.write(folder / f"train-labels-idx1-ubyte{suffix}", layouts.idx(labels)),
        layouts.write(folder / f"qmnist-train-labels-idx2-int{suffix}", layouts.idx(extended)),
    )


@given(arrays.arrays(st.sampled_from([np.uint8, np.int32]), arrays.array_shapes(max_dims=3, max_side=5)))
def test_an_array_that_is_written_is_read_back(tmp_path_factory, array):
    path = layouts.write(tmp_path_factory.mktemp("idx") / "array", layouts.idx(array))
    read = idx.read_array(path)
    assert read.dtype == array.dtype and read.dtype.isnative
    np.testing.assert_array_equal(read, array)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_writers_are_clients_in_the_order_of_the_images(tmp_path, suffix):
    examples = list(idx.read(*mnist_files(tmp_path, suffix)))
    assert [writer for writer, _ in examples] == ["2154", "0", "2154", "7"]
    assert [example["label"] for _, example in examples] == [5, 0, 4, 1]
    assert examples[1][1]["image"].shape == (28, 28)
    assert examples[1][1]["image"][0, 0] == 784 % 256  # second image starts at 28²


def test_writers_without_an_image_are_skipped(tmp_path):
    assert len(list(idx.read(*mnist_files(tmp_path, writers=[*WRITERS, 8, 9])))) == 4


def test_files_of_different_splits_are_refused(tmp_path):
    images, labels, _ = mnist_files(tmp_path)
    with pytest.raises(ValueError, match=r"names 3 writers for 4 images: use the same split"):
        list(idx.read(*mnist_files(tmp_path, writers=WRITERS[:3])))
    other = np.array([[9, 0, 1, 0, 0, 0, 0, 0]] * 4, np.int32)
    writers = layouts.write(tmp_path / "other", layouts.idx(other))
    with pytest.raises(ValueError, match=r"other and .* disagree on 4 classes: use the same split"):
        list(idx.read(images, labels, writers))
    short = layouts.write(tmp_path / "short", layouts.idx(LABELS[:2]))
    with pytest.raises(ValueError, match=r"has 4 images, .*short 2: use the same split"):
        list(idx.read(images, short, writers))


def test_files_given_in_the_wrong_order_are_refused(tmp_path):
    images, labels, writers = mnist_files(tmp_path)
    with pytest.raises(ValueError, match="has 1 dimensions, not 3: give an …-images"):
        list(idx.read(labels, images, writers))
    with pytest.raises(ValueError, match="has 2 dimensions, not 1: give a …-labels"):
        list(idx.read(images, writers, labels))
    with pytest.raises(ValueError, match=r"has shape \(4,\), not \(n, 8\): give a qmnist"):
        list(idx.read(images, labels, labels))


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("kept", [0.0005, 0.002, 0.5, 0.99])
def test_a_truncated_file_is_an_error_wherever_it_was_cut(tmp_path, suffix, kept):
    images, labels, writers = mnist_files(tmp_path, suffix)
    layouts.truncate(images, kept)
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte.* (is damaged|not an IDX magic number)"):
        list(idx.read(images, labels, writers))


def test_bytes_after_the_announced_array_are_an_error(tmp_path):
    path = layouts.write(tmp_path / "long", layouts.idx(LABELS) + b"\0")
    expected = r"long is damaged \(13 bytes when unpacked, but its header announces 12\)"  # 4 + 4 + 4 bytes
    with pytest.raises(ValueError, match=expected):
        idx.read_array(path)


def test_another_format_is_refused_by_its_magic_number(tmp_path):
    with pytest.raises(ValueError, match=r"photo starts with 'ff d8 ff e0', not an IDX magic number: give an IDX file"):
        idx.read_array(layouts.write(tmp_path / "photo", b"\xff\xd8\xff\xe0"))


@pytest.mark.data
def test_real_writers_have_their_published_counts_and_none_is_in_both_splits():
    def writers(split, qmnist_split):
        examples = idx.read(
            layouts.real_file("mnist", f"{split}-images-idx3-ubyte.gz"),
            layouts.real_file("mnist", f"{split}-labels-idx1-ubyte.gz"),
            layouts.real_file("mnist", f"qmnist-{qmnist_split}-labels-idx2-int.gz"),
        )
        return [writer for writer, _ in examples]

    train, test = writers("train", "train"), writers("t10k", "test")
    assert (len(train), len(test)) == (60_000, 10_000)
    assert (len(set(train)), len(set(test))) == (539, 297)
    assert not set(train) & set(test)
