"""Imported data sets: streamed, complete or not there at all, found by name."""

import json
import tracemalloc

import numpy as np
import pytest

import fedtrue as ft
from fedtrue.data import import_stream, locations, rows
from fedtrue.data.conversion import Roles
from fedtrue.data.import_stream import ImportPlan, Partition
from fedtrue.data.imports import find_imported, import_source, imported_names
from fedtrue.data.sources import open_source


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDTRUE_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(locations, "_user_folder", lambda: tmp_path / "user")
    return tmp_path / "data" / "imported"


@pytest.fixture
def visits(tmp_path):
    """200 rows of 7 clinics; row i has the age i, so that it can be identified."""
    kinds = ["ill", "well", "unsure"]
    lines = ["clinic,age,state", *(f"c{i % 7},{i},{kinds[i % 3]}" for i in range(200))]
    path = tmp_path / "visits.csv"
    path.write_text("\n".join(lines))
    return path


def run_import(path, name="visits", client="clinic", overwrite=False, test=None, **plan):
    roles = Roles(client, label="state", ignore=() if client else ("clinic",))
    test = None if test is None else open_source([test])
    return import_source(name, open_source([path]), test, ImportPlan(roles, "csv", **plan), overwrite)


def ages(data):
    return sorted(data.values("x")[:, 0].astype(int).tolist())


def test_an_imported_data_set_is_the_one_that_is_read_into_memory(visits, monkeypatch):
    monkeypatch.setattr(rows, "MAX_CHUNK_ROWS", 16)  # many chunks
    stored = run_import(visits).splits()["train"]
    read = ft.data.from_csv(visits, client="clinic", label="state")
    assert list(stored.names) == list(read.names) and stored.classes == read.classes == ["ill", "unsure", "well"]
    for client in range(7):
        for column in ("x", "y"):
            np.testing.assert_array_equal(stored.client(client)[column], read.client(client)[column])
    assert ft.data.imported("visits")["train"].examples == 200


def test_test_examples_are_drawn_from_every_client_and_none_is_lost(visits):
    splits = run_import(visits, test_fraction=0.3, seed=1).splits()
    assert sorted(ages(splits["train"]) + ages(splits["test"])) == list(range(200))
    assert len(splits["train"]) == 7 and 40 <= splits["test"].examples <= 80  # 60 ± 3 deviations
    again = run_import(visits, "again", test_fraction=0.3, seed=1).splits()
    other = run_import(visits, "other", test_fraction=0.3, seed=2).splits()
    assert ages(again["test"]) == ages(splits["test"]) != ages(other["test"])


def test_a_client_with_one_example_keeps_it_for_training(tmp_path):
    (tmp_path / "v.csv").write_text("clinic,age,state\n" + "".join(f"c{i},{i},ill\n" for i in range(50)))
    splits = run_import(tmp_path / "v.csv", test_fraction=0.9).splits()
    assert set(splits) == {"train"} and splits["train"].examples == 50


def test_a_test_file_shares_the_classes_of_all_files(visits, tmp_path):
    (tmp_path / "test.csv").write_text("clinic,age,state\nc1,5,cured\nc2,6,ill\n")
    splits = run_import(visits, test=tmp_path / "test.csv").splits()
    assert splits["train"].classes == ["cured", "ill", "unsure", "well"]
    assert splits["test"].values("y").tolist() == [0, 1]


def test_a_partition_assigns_the_rows_and_the_test_file_is_one_client(visits, tmp_path):
    chosen = Partition("shards", 6, {"shards_per_client": 1})
    splits = run_import(visits, client=None, partition=chosen, test=visits, seed=3).splits()
    train = splits["train"]
    assert ages(train) == list(range(200)) and list(train.names) == [f"client_{i}" for i in range(6)]
    assert all(len(set(train.client(i)["y"].tolist())) == 1 for i in range(6))
    assert list(splits["test"].names) == ["test"] and splits["test"].examples == 200
    labels = np.arange(200) % 3  # as in the file: the numbers of the classes do not matter
    parts = ft.data.partition.shards(labels, 6, seed=3, shards_per_client=1)
    assert [sorted(train.client(i)["x"][:, 0].astype(int)) for i in range(6)] == [sorted(part) for part in parts]


def test_examples_that_pachinko_leaves_over_are_left_out(tmp_path):
    lines = ["age,state,clinic", *(f"{i},s{i % 4},c{i % 2}" for i in range(50))]
    (tmp_path / "v.csv").write_text("\n".join(lines))
    plan = ImportPlan(Roles(None, label="state", ignore="clinic"), "csv", Partition("pachinko", 7, coarse="clinic"))
    data = import_source("v", open_source([tmp_path / "v.csv"]), None, plan).splits()["train"]
    assert data.sizes.tolist() == [7] * 7


def test_features_have_their_train_mean_and_deviation(visits):
    meta = run_import(visits, test_fraction=0.5).meta
    train = find_imported("visits").splits()["train"].values("x")[:, 0]
    assert meta["moments"]["x"]["mean"] == pytest.approx([train.mean()], rel=1e-6)
    assert meta["moments"]["x"]["deviation"] == pytest.approx([train.std()], rel=1e-6)


def test_the_meta_file_says_where_the_data_comes_from(visits, root):
    run_import(visits)
    meta = json.loads((root / "visits" / "meta.json").read_text())
    assert (meta["format"], meta["kind"], meta["classes"]) == ("csv", "features", 3)
    assert meta["roles"]["client"] == "clinic" and meta["sources"][0]["path"] == str(visits)
    assert meta["sources"][0]["bytes"] == visits.stat().st_size and len(meta["sources"][0]["sample_sha256"]) == 64


def test_a_failed_import_leaves_nothing_and_a_failed_replacement_the_old_data(visits, tmp_path, root):
    broken = tmp_path / "broken.csv"
    broken.write_text(visits.read_text() + "\n,5,ill\n")  # without a client: found in the second pass
    with pytest.raises(ValueError, match="row 201: column 'clinic' is missing"):
        run_import(broken)
    assert imported_names() == [] and [path.name for path in root.iterdir()] == [".locks"]
    run_import(visits)
    with pytest.raises(ValueError, match="row 201"):
        run_import(broken, overwrite=True)
    assert find_imported("visits").splits()["train"].examples == 200
    run_import(visits, overwrite=True, test_fraction=0.5)
    assert set(find_imported("visits").splits()) == {"train", "test"}
    assert sorted(path.name for path in root.iterdir()) == [".locks", "visits"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"client": None}, "the data has no clients: give --client COLUMN, or --partition"),
        ({"partition": Partition("iid", 2)}, "the clients are in column 'clinic': leave out --partition"),
        ({"test_fraction": 1.0}, "the test fraction is 1.0"),
        ({"name": "a/b"}, "'a/b' cannot be the name of a data set"),
        ({"name": "../up"}, "cannot be the name"),
        ({"client": None, "partition": Partition("pachinko", 2)}, "partition 'pachinko' needs coarse: give --coarse"),
        ({"client": None, "partition": Partition("iid", 500)}, "clients=500: choose at most the number of examples"),
    ],
)
def test_plans_that_cannot_be_done_are_refused_before_anything_is_written(change, message, visits, root):
    with pytest.raises(ValueError, match=message):
        run_import(visits, **change)
    assert not root.exists() or [path.name for path in root.iterdir()] == [".locks"]


def test_an_existing_or_damaged_data_set_is_named(visits, root):
    run_import(visits)
    with pytest.raises(ValueError, match="visits exists already: give another name, or --replace"):
        run_import(visits)
    (root / "visits" / "train" / "x.npy").unlink()
    with pytest.raises(ValueError, match="visits is damaged: import the data set again with --replace"):
        ft.data.imported("visits")
    with pytest.raises(ValueError, match=r"no data set 'visit' was imported \(there are: visits\)"):
        ft.data.imported("visit")


def test_dirichlet_of_numbers_to_predict_is_refused(tmp_path):
    (tmp_path / "v.csv").write_text("age,state\n1,0.5\n2,1.5\n")
    plan = ImportPlan(Roles(None, label="state"), "csv", Partition("dirichlet", 2, {"alpha": 1.0}))
    with pytest.raises(ValueError, match="dirichlet partitions by classes, but the labels are numbers"):
        import_source("v", open_source([tmp_path / "v.csv"]), None, plan)


def peak_bytes_of_import(path, examples):
    with path.open("w") as file:
        file.write("clinic,state," + ",".join(f"f{i}" for i in range(50)) + "\n")
        for i in range(examples):
            file.write(f"c{i % 40},{i % 2}" + ",0.123456" * 50 + "\n")
    plan = ImportPlan(Roles("clinic", label="state"), "csv", test_fraction=0.2)
    tracemalloc.start()
    import_source(path.stem, open_source([path]), None, plan)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_does_not_grow_with_the_number_of_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "MAX_CHUNK_ROWS", 128)
    few, many = (peak_bytes_of_import(tmp_path / f"rows{n}.csv", n) for n in (500, 2500))
    assert many < 1.3 * few


def test_the_moments_of_chunks_are_those_of_all_values():
    values = np.random.default_rng(0).normal(5.0, 2.0, (100, 3))
    moments = import_stream.Moments("x")
    for part in np.split(values, [1, 40]):
        moments.add(import_stream.Chunk(["a"] * len(part), {"x": part}))
    found = moments.as_lists()
    np.testing.assert_allclose(found["mean"], values.mean(axis=0))
    np.testing.assert_allclose(found["deviation"], values.std(axis=0))
