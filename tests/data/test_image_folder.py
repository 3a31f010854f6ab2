"""Laws of the image folder source."""

import io

import layouts
import numpy as np
import pytest
from PIL import Image

from fedtrue.data import image_folder


def picture(colour: tuple[int, int, int], image_format: str = "PNG", mode: str = "RGB") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 3), colour).convert(mode).save(buffer, image_format)
    return buffer.getvalue()


MEMBERS = {  # unsorted, as in some archives
    "README.md": b"words",
    "train/frog/0001.png": picture((0, 255, 0)),
    "train/cat/0002.jpg": picture((8, 8, 8), "JPEG", "L"),
    "train/cat/0001.png": picture((255, 0, 0)),
    "test/frog/0000.png": picture((0, 0, 255)),
    "loose.jpg": b"in no class",
}


def folder_of(root, members=MEMBERS):
    for name, content in members.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def listed(path, split):
    return [(name, example["label"], example["image"].tolist()) for name, example in image_folder.read(path, split)]


def test_images_are_sorted_and_labelled_by_class_name(tmp_path):
    examples = list(image_folder.read(folder_of(tmp_path), "train"))
    assert [name for name, _ in examples] == ["cat", "cat", "frog"]
    assert [example["label"] for _, example in examples] == [0, 0, 1]
    assert examples[0][1]["image"].shape == (3, 4, 3) and examples[0][1]["image"].dtype == np.uint8
    assert (examples[0][1]["image"] == [255, 0, 0]).all()
    assert (examples[1][1]["image"] == 8).all()  # grey becomes three equal channels


@pytest.mark.parametrize("suffix", layouts.COMPRESSIONS)
def test_an_archive_gives_the_same_images_as_its_folder(tmp_path, suffix):
    archive = layouts.write(tmp_path / f"a.tar{suffix}", layouts.tar(MEMBERS))
    folder = folder_of(tmp_path / "folder")
    for split in ("train", "test"):
        assert listed(archive, split) == listed(folder, split)


def test_a_leading_dot_or_top_folder_changes_nothing(tmp_path):
    plain = layouts.write(tmp_path / "plain.tar", layouts.tar(MEMBERS))
    for prefix in ("./", "cifar10/"):
        nested = {prefix + name: content for name, content in MEMBERS.items() if "/" in name}
        assert listed(layouts.write(tmp_path / "nested.tar", layouts.tar(nested)), "train") == listed(plain, "train")


def test_classes_without_a_split_need_none(tmp_path):
    path = layouts.write(tmp_path / "a.tar", layouts.tar({"cat/1.png": picture((1, 2, 3))}))
    assert [name for name, _ in image_folder.read(path)] == ["cat"]


def test_the_split_must_be_one_of_those_in_the_archive(tmp_path):
    path = layouts.write(tmp_path / "a.tar", layouts.tar(MEMBERS))
    with pytest.raises(ValueError, match=r"a.tar contains the splits test, train: choose one of them"):
        list(image_folder.read(path))
    with pytest.raises(ValueError, match=r"a.tar contains no split 'val': choose test, train"):
        list(image_folder.read(path, "val"))
    with pytest.raises(ValueError, match=r"b.tar contains no <class>/<name>.jpg"):
        list(image_folder.read(layouts.write(tmp_path / "b.tar", layouts.tar({"README.md": b""}))))


def test_a_damaged_image_is_named_with_its_archive(tmp_path):
    complete = picture((9, 9, 9), "JPEG")
    for broken, reason in ((b"no image", "not a known image format"), (complete[: len(complete) // 2], "")):
        path = layouts.write(tmp_path / "a.tar", layouts.tar({"cat/1.jpg": broken}))
        with pytest.raises(ValueError, match=rf"a\.tar, cat/1\.jpg is damaged \({reason}.*nothing was changed"):
            list(image_folder.read(path))


@pytest.mark.parametrize("suffix", layouts.COMPRESSIONS)
def test_a_truncated_archive_is_named(tmp_path, suffix):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, "PNG")
    archive = layouts.tar({f"cat/{i}.png": buffer.getvalue() for i in range(3)})
    path = layouts.truncate(layouts.write(tmp_path / f"a.tar{suffix}", archive), 0.4)
    with pytest.raises(ValueError, match=r"a\.tar.* is damaged"):
        list(image_folder.read(path))


@pytest.mark.slow  # decompresses all of it; small archives in this layout are above
@pytest.mark.data
def test_the_real_archive_has_its_published_counts_and_decodes():
    path = layouts.real_file("cifar10", "cifar10-jpeg.tar.xz")
    with image_folder.open_entries(path, "train") as entries:
        assert len(entries) == 50_000
        assert len({entry.class_name for entry in entries}) == 10
    reader = image_folder.read(path, "test")
    for _ in range(3):
        name, example = next(reader)
        assert name == "airplane" and example["label"] == 0 and example["image"].shape == (32, 32, 3)
    reader.close()
