"""Laws of the image tasks: augmentation, standardisation, partition into clients."""

import gzip

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_files import cifar100, layouts, mnist

import fedtrue as ft
from fedtrue.models.model import Model
from fedtrue.tasks.image_classification import central_crop, image_task, random_crop_and_flip, standardise

IMAGES = np.random.default_rng(0).integers(256, size=(6, 32, 32, 3)).astype(np.uint8)


def windows(image):
    """Every 24×24 window of an image, and its mirror image, as bytes."""
    cuts = [image[top : top + 24, left : left + 24] for top in range(9) for left in range(9)]
    return {cut.tobytes() for cut in cuts} | {cut[:, ::-1].tobytes() for cut in cuts}


def test_a_random_crop_is_a_window_of_its_image_or_of_its_mirror_image():
    cropped = np.asarray(random_crop_and_flip(jax.random.key(3), jnp.asarray(IMAGES)))
    assert cropped.shape == (6, 24, 24, 3)
    for crop, image in zip(cropped, IMAGES):
        assert np.ascontiguousarray(crop).tobytes() in windows(image)


def test_crops_depend_on_the_key_reach_every_edge_and_flip_half_of_the_time():
    ramp = np.broadcast_to(np.arange(32)[:, None] * 4 + np.arange(32) / 32, (2000, 32, 32))[..., None]
    cropped = np.asarray(random_crop_and_flip(jax.random.key(0), jnp.asarray(ramp, jnp.float32)))
    flipped = cropped[:, 0, 0, 0] > cropped[:, 0, 1, 0]
    assert flipped.mean() == pytest.approx(0.5, abs=0.05)  # 4.5 standard deviations of 2,000 coin flips
    left = np.where(flipped, cropped[:, 0, -1, 0], cropped[:, 0, 0, 0]) % 4 * 32
    assert set(np.round(left).astype(int)) == set(range(9))  # 32 − 24 + 1 positions
    assert set(np.floor(cropped[:, 0, 0, 0] / 4).astype(int)) == set(range(9))
    other = random_crop_and_flip(jax.random.key(1), jnp.asarray(ramp, jnp.float32))
    assert (np.asarray(other) != cropped).any()


def test_the_central_crop_is_the_middle_and_does_not_change_a_cropped_image():
    middle = central_crop(jnp.asarray(IMAGES))
    np.testing.assert_array_equal(middle, IMAGES[:, 4:28, 4:28])
    np.testing.assert_array_equal(central_crop(middle), middle)


def test_standardised_images_have_mean_0_and_deviation_1_and_a_uniform_one_is_0():
    standard = np.asarray(standardise(jnp.asarray(IMAGES)))
    np.testing.assert_allclose(standard.mean(axis=(1, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(standard.std(axis=(1, 2, 3)), 1, rtol=1e-5)
    assert not np.asarray(standardise(jnp.full((1, 24, 24, 3), 7, jnp.uint8))).any()


def test_the_standard_deviation_is_at_least_one_over_the_root_of_the_size():
    image = jnp.zeros((1, 2, 2, 1)).at[0, 0, 0, 0].set(0.1)  # mean 0.025, σ = 0.0433 < 1/√4
    np.testing.assert_allclose(np.asarray(standardise(image))[0, 0, 0, 0], (0.1 - 0.025) / 0.5, rtol=1e-5)


def test_loss_and_accuracy_ignore_padding():
    fixed = Model(lambda key: {}, lambda params, images: jnp.array([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]]))
    train = ft.ClientData.from_clients([{"image": IMAGES[:3], "label": np.zeros(3)}])
    task = image_task(name="images", model=fixed, preprocess=lambda images: images, train=train)
    batch = {
        "image": IMAGES[:3],
        "label": jnp.array([0, 0, 0]),
        "mask": jnp.array([1.0, 1, 0]),
        "key": jax.random.key(0),
    }
    loss, _ = task.loss({}, batch)
    assert float(loss) == pytest.approx((np.log(2) + np.log(1 + np.exp(-5))) / 2, rel=1e-5)
    assert [float(value) for value in task.metrics({}, batch)["accuracy"]] == [2, 2]  # the third is wrong, but padding


def test_cifar10_assigns_every_image_to_one_client_and_the_seed_determines_the_split(small_data):
    task = ft.tasks.cifar10(clients=5, alpha=0.1)
    assert (len(task.train), task.train.examples, task.test.examples) == (5, 50, 10)
    again, other = ft.tasks.cifar10(clients=5, alpha=0.1), ft.tasks.cifar10(clients=5, alpha=0.1, seed=1)
    np.testing.assert_array_equal(task.train.columns["image"], again.train.columns["image"])
    assert (task.train.columns["image"] != other.train.columns["image"]).any()
    assert sorted(np.asarray(task.train.columns["label"]).tolist()) == sorted(list(range(10)) * 5)


def test_cifar100_in_its_binary_version_is_allocated_by_pachinko_and_the_source_says_so(empty_data):
    (empty_data / "cifar100").mkdir()
    generator = np.random.default_rng(0)

    def records(images):
        fine = np.arange(images) % 100
        labels = np.stack([fine // 5, fine], axis=1)
        return layouts.cifar_records(labels, generator.integers(256, size=(images, 32, 32, 3)).astype(np.uint8))

    archive = layouts.tar({"train.bin": records(300), "test.bin": records(200)})
    (empty_data / "cifar100" / "cifar-100-binary.tar.gz").write_bytes(gzip.compress(archive))
    task = ft.tasks.cifar100()
    assert "Pachinko" in task.source and "not the paper's clients" in task.source
    assert task.train.sizes.tolist() == [100, 100, 100] and task.test.sizes.tolist() == [100, 100]
    assert np.bincount(task.train.columns["label"], minlength=100).tolist() == [3] * 100


def test_the_default_network_of_cifar100_accepts_its_batches(small_data):
    task = ft.tasks.cifar100()
    batch = {"image": IMAGES, "label": jnp.arange(6), "mask": jnp.ones(6), "key": jax.random.key(0)}
    gradient = jax.grad(lambda params: task.loss(params, batch)[0])
    shapes = jax.eval_shape(lambda key: gradient(task.init(key)), jax.random.key(0))
    assert shapes["output"]["kernel"].shape == (512, 100)


@pytest.mark.parametrize("label", [100, -1])
def test_the_error_for_a_label_out_of_range_names_file_client_and_label(label, empty_data):
    (empty_data / "cifar100").mkdir()
    cifar100(empty_data / "cifar100", labels=[0, label])
    with pytest.raises(ValueError, match=rf"cifar100\.sqlite: client 'train_0' has label {label} of 100 classes"):
        ft.tasks.cifar100()


def test_a_wrong_model_is_refused_with_a_suggestion(small_data):
    with pytest.raises(ValueError, match="did you mean 'logistic'"):
        ft.tasks.mnist(model="logistics")
    with pytest.raises(ValueError, match="did you mean 'resnet18'"):
        ft.tasks.cifar10(clients=5, model="resnet50")


def test_mnist_writers_are_clients(empty_data):
    (empty_data / "mnist").mkdir()
    mnist(empty_data / "mnist")
    task = ft.tasks.mnist()
    assert list(task.train.client_ids) == ["100", "101", "102"] and list(task.test.client_ids) == ["200", "201", "202"]
    assert task.train.client(1)["label"].tolist() == [1, 4, 7, 0]  # images 1, 4, 7, 10


def test_the_dirichlet_split_of_mnist_has_every_image_of_the_writers_once(empty_data):
    (empty_data / "mnist").mkdir()
    mnist(empty_data / "mnist")
    writers, split, with_validation = (
        ft.tasks.mnist(),
        ft.tasks.mnist(clients=4, alpha=0.3),
        ft.tasks.mnist(validation=0.34),
    )
    tuned = ft.tasks.mnist(clients=2, validation=0.34)
    images = lambda data: sorted(
        image.tobytes() for client in range(len(data)) for image in data.client(client)["image"]
    )
    assert len(split.train) == 4 and "4 clients by Dirichlet(0.3)" in split.source
    assert images(split.train) == images(writers.train)
    assert images(tuned.train) == images(with_validation.train)  # held-out writers are not in the split
    assert images(tuned.validation) == images(with_validation.validation)


@pytest.mark.data
def test_mnist_has_539_writers_in_train_and_297_others_in_test(monkeypatch, tmp_path):
    layouts.real_file("mnist", "train-images-idx3-ubyte.gz")
    monkeypatch.setenv("FEDTRUE_CACHE", str(tmp_path))
    task = ft.tasks.mnist()
    assert (len(task.train), task.train.examples) == (539, 60_000)
    assert (len(task.test), task.test.examples) == (297, 10_000)
    assert not set(task.train.client_ids) & set(task.test.client_ids)
