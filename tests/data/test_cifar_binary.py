"""Laws of the CIFAR binary source."""

import gzip

import layouts
import numpy as np
import pytest

from fedtrue.data import cifar_binary


def images(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 32, 32, 3), np.uint8)


def cifar100_tar(folder, train=3, test=2):
    members = {
        "cifar-100-binary/fine_label_names.txt": b"apple\n",
        "cifar-100-binary/test.bin": layouts.cifar_records(np.array([[19, 99]] * test), images(test, 1)),
        "cifar-100-binary/train.bin": layouts.cifar_records(np.array([[4, 0]] * train), images(train)),
    }
    path = folder / "cifar-100-binary.tar.gz"
    path.write_bytes(gzip.compress(layouts.tar(members)))
    return path


def test_planes_become_rows_of_pixels(tmp_path):
    red_then_blue = bytes([3]) + b"\xff" * 1024 + b"\0" * 1024 + b"\x07" * 1024
    read = cifar_binary.read(layouts.write(tmp_path / "test_batch.bin", red_then_blue), "cifar10")
    assert read["image"].shape == (1, 32, 32, 3) and read["image"].dtype == np.uint8
    assert (read["image"] == [255, 0, 7]).all()
    assert read["label"].tolist() == [3]


def test_both_splits_are_read_from_the_published_archive(tmp_path):
    path = cifar100_tar(tmp_path)
    train, test = cifar_binary.read(path, "cifar100"), cifar_binary.read(path, "cifar100", "test")
    np.testing.assert_array_equal(train["image"], images(3))
    np.testing.assert_array_equal(test["image"], images(2, 1))
    assert (train["coarse_label"][0], train["label"][0]) == (4, 0)
    assert (test["coarse_label"][0], test["label"][0]) == (19, 99)


def test_batches_are_joined_by_number_for_any_order_in_the_archive(tmp_path):
    batches = {
        f"cifar-10-batches-bin/data_batch_{i}.bin": layouts.cifar_records(np.array([[i]]), images(1, i))
        for i in (3, 1, 5, 4, 2)
    }
    path = layouts.write(tmp_path / "cifar-10-binary.tar", layouts.tar(batches))
    assert cifar_binary.read(path, "cifar10")["label"].tolist() == [1, 2, 3, 4, 5]


def test_an_unpacked_folder_equals_its_archive(tmp_path):
    (tmp_path / "train.bin").write_bytes(layouts.cifar_records(np.array([[4, 0]] * 3), images(3)))
    folder, archive = cifar_binary.read(tmp_path, "cifar100"), cifar_binary.read(cifar100_tar(tmp_path), "cifar100")
    for key in archive:
        np.testing.assert_array_equal(folder[key], archive[key])


@pytest.mark.parametrize(
    ("labels", "message"), [((20, 0), "coarse_label of record 1 is 20"), ((0, 100), "label of record 1 is 100")]
)
def test_a_label_out_of_range_is_an_error(tmp_path, labels, message):
    path = layouts.write(tmp_path / "train.bin", layouts.cifar_records(np.array([(0, 0), labels]), images(2)))
    with pytest.raises(ValueError, match=rf"train\.bin is damaged \({message}, but there are"):
        cifar_binary.read(path, "cifar100")


def test_an_incomplete_record_is_an_error(tmp_path):
    path = layouts.write(tmp_path / "train.bin", layouts.cifar_records(np.array([[0, 0]]), images(1)))
    with pytest.raises(ValueError, match=r"3074 bytes is not a multiple of the record size, 3073"):  # 2 + 3·32²
        cifar_binary.read(path, "cifar10")
    with pytest.raises(ValueError, match=r"train.bin is damaged \(0 bytes"):
        cifar_binary.read(layouts.truncate(path, 0), "cifar100")


@pytest.mark.parametrize("damage", [layouts.truncate, layouts.overwrite])
def test_a_damaged_archive_is_named(tmp_path, damage):
    with pytest.raises(ValueError, match=r"cifar-100-binary.tar.gz is damaged .*nothing was changed"):
        cifar_binary.read(damage(cifar100_tar(tmp_path)), "cifar100")


def test_another_archive_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"contains no data_batch_1.bin: use the complete tar.gz"):
        cifar_binary.read(cifar100_tar(tmp_path), "cifar10")
    with pytest.raises(ValueError, match=r"is damaged \(not a readable tar archive"):
        cifar_binary.read(layouts.write(tmp_path / "cifar.tar", b"no tar" * 200), "cifar10")


def test_the_error_for_a_wrong_name_lists_the_valid_ones(tmp_path):
    with pytest.raises(ValueError, match=r"CIFAR layout 'cifar_10' is not known \(did you mean 'cifar10'\?\)"):
        cifar_binary.read(tmp_path, "cifar_10")
    with pytest.raises(ValueError, match=r"split 'val' is not known.*choose one of: train, test"):
        cifar_binary.read(tmp_path, "cifar10", "val")
