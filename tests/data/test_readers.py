"""ft.data.from_*: the same rows give the same clients, from any format."""

import json
import sys

import generated
import layouts
import numpy as np
import pytest
from PIL import Image

import fedtrue as ft

ROWS = {
    "user": ["b", "a", "b", "a", "b"],
    "age": [31, 27, 45, 60, 18],
    "height": [1.5, 1.75, 2.0, 1.25, 1.0],
    "paid": ["yes", "no", "no", "yes", "yes"],
}
X_OF_B = [[31.0, 1.5], [45.0, 2.0], [18.0, 1.0]]  # in the order of the source


def csv_text(rows, separator=","):
    lines = [list(rows), *zip(*rows.values())]
    return "\n".join(separator.join(map(str, line)) for line in lines) + "\n"


def read_csv(rows, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(csv_text(rows))
    return ft.data.from_csv(path, client="user", label="paid")


def read_json_lines(rows, tmp_path):
    records = [dict(zip(rows, row)) for row in zip(*rows.values())]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    return ft.data.from_json_lines(path, client="user", label="paid")


def read_npz(rows, tmp_path):
    np.savez(tmp_path / "rows.npz", **{name: np.array(values) for name, values in rows.items()})
    return ft.data.from_npz(tmp_path / "rows.npz", client="user", label="paid")


def read_pandas(rows, tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    return ft.data.from_pandas(pandas.DataFrame(rows), client="user", label="paid")


def read_arrow(rows, tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    return ft.data.from_arrow(pyarrow.table(rows), client="user", label="paid")


def read_parquet(rows, tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table(rows), tmp_path / "rows.parquet")
    return ft.data.from_parquet(tmp_path / "rows.parquet", client="user", label="paid")


def read_huggingface(rows, tmp_path):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    return ft.data.from_huggingface(datasets.Dataset.from_dict(rows), client="user", label="paid")


READERS = [read_csv, read_json_lines, read_npz, read_pandas, read_arrow, read_parquet, read_huggingface]


@pytest.mark.parametrize("read", READERS)
def test_the_same_rows_give_the_same_clients_from_any_format(read, tmp_path):
    data = read(ROWS, tmp_path)
    assert list(data.names) == ["a", "b"] and data.sizes.tolist() == [2, 3]
    assert data.client(1)["x"].tolist() == X_OF_B and data.columns["x"].dtype == np.float32
    assert data.client(1)["y"].tolist() == [1, 0, 1] and data.classes == ["no", "yes"]


@pytest.mark.parametrize("read", READERS)
def test_a_missing_number_is_refused_with_its_row(read, tmp_path):
    missing = "" if read is read_csv else None if read is read_json_lines else np.nan
    with pytest.raises(ValueError, match="row 3: column 'height' is missing"):
        read({**ROWS, "height": [1.5, 1.75, missing, 1.25, 1.0]}, tmp_path)


@pytest.mark.parametrize("read", READERS)
def test_a_column_of_texts_is_refused_with_the_cure(read, tmp_path):
    with pytest.raises(ValueError, match=r"column city holds no numbers: leave it out with ignore=\['city'\]"):
        read({**ROWS, "city": ["Rome", "Oslo", "Bern", "Rome", "Oslo"]}, tmp_path)


@pytest.mark.parametrize(
    ("labels", "expected", "classes"),
    [
        ([3, 0, 61], [3, 0, 61], None),  # whole numbers from 0 stay
        ([-1, 1, -1], [0, 1, 0], ["-1", "1"]),
        ([10, 9, 20_000], [1, 0, 2], ["9", "10", "20000"]),  # by value, not by text
        (["b", "a", "b"], [1, 0, 1], ["a", "b"]),
        ([0.5, 2.0, 1.0], [0.5, 2.0, 1.0], None),  # numbers to predict
        ([True, False, True], [1, 0, 1], None),
    ],
)
def test_labels_are_classes_if_they_are_whole_numbers_or_texts(labels, expected, classes, tmp_path):
    rows = {"user": ["a"] * 3, "age": [1, 2, 3], "paid": labels}
    readers = [read_json_lines] if isinstance(labels[0], bool) else [read_json_lines, read_csv, read_npz]
    for read in readers:
        data = read(rows, tmp_path)
        assert data.columns["y"].tolist() == expected and data.classes == classes
        assert data.columns["y"].dtype == (np.float32 if labels[0] == 0.5 else np.int32)


def test_classes_of_the_train_data_number_the_test_data(tmp_path):
    train = read_csv({**ROWS, "paid": ["cat", "dog", "owl", "cat", "cat"]}, tmp_path)
    (tmp_path / "test.csv").write_text("user,age,height,paid\na,1,2,owl\n")
    test = ft.data.from_csv(tmp_path / "test.csv", client="user", label="paid", classes=train.classes)
    assert test.columns["y"].tolist() == [2]
    (tmp_path / "test.csv").write_text("user,age,height,paid\na,1,2,fox\n")
    with pytest.raises(ValueError, match="row 1: column 'paid' is 'fox', which is none of the classes cat, dog, owl"):
        ft.data.from_csv(tmp_path / "test.csv", client="user", label="paid", classes=train.classes)


@pytest.mark.parametrize(("separator", "suffix"), [(",", ""), (";", ".gz"), ("\t", ".xz")])
def test_csv_with_other_separators_and_compressions(separator, suffix, tmp_path):
    path = layouts.write(tmp_path / f"rows.csv{suffix}", csv_text(ROWS, separator).encode())
    assert ft.data.from_csv(path, client="user", label="paid").client(1)["x"].tolist() == X_OF_B


def test_several_files_are_read_one_after_another(tmp_path):
    for number in (1, 2):
        (tmp_path / f"{number}.csv").write_text(f"user,age,paid\na,{number},yes\n")
    files = [tmp_path / "1.csv", tmp_path / "2.csv"]
    assert ft.data.from_csv(files, client="user", label="paid").client(0)["x"].tolist() == [[1.0], [2.0]]
    assert ft.data.from_csv(tmp_path, client="user", label="paid").examples == 2  # the folder


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "rows.csv is empty"),
        ("1,2\n3,4\n", "has numbers in its first line: add a header line"),
        ("user,age,age,paid\n", "has two columns named 'age'"),
        ("user,age,paid\na,1\n", "row 1 has 2 values, but the header has 3 names"),
        ("user,age,paid\na,1,yes\nb,old,no\n", "row 2: column 'age' is 'old', not a number: correct it"),
        ("user,age,paid\n", "has no examples"),
        ("usr,age,paid\na,1,yes\n", r"no column 'user' \(did you mean 'usr'\?\); it has: usr, age, paid"),
        ("user,age,paid\n,1,yes\n", "row 1: column 'user' is missing"),
        ("user,age,paid\na,1,yes\na,1e39,yes\n", "row 2: column 'age' is infinite, or too large for float32"),
        ("user,age,paid\na,1,\n", "row 1: column 'paid' is missing"),
        ("user,paid\na,yes\n", "has no column of numbers besides user, paid"),
    ],
)
def test_csv_files_that_cannot_be_used_are_refused_with_the_row(text, message, tmp_path):
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        ft.data.from_csv(tmp_path / "rows.csv", client="user", label="paid")


def test_a_file_that_is_not_utf_8_is_named(tmp_path):
    (tmp_path / "rows.csv").write_bytes("user,age,paid\nJürgen,1,yes\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"rows.csv is not UTF-8"):
        ft.data.from_csv(tmp_path / "rows.csv", client="user", label="paid")


def test_a_text_far_down_in_a_column_of_numbers_is_refused_with_its_row(tmp_path):
    lines = ["user,age,paid", *(f"u{i % 3},{i},yes" for i in range(20_000)), "u1,unknown,yes"]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    with pytest.raises(ValueError, match="row 20001: column 'age' is 'unknown', not a number"):
        ft.data.from_csv(tmp_path / "rows.csv", client="user", label="paid")


NO_REAL_NUMBERS = {
    "dates": np.array(["2020-01-01"] * 5, "M8[ns]"),
    "durations": np.array([1, 2, 3, 4, 5], "m8[s]"),
    "complex numbers": np.array([1 + 2j] * 5),
}


@pytest.mark.parametrize("read", [read_pandas, read_npz])
@pytest.mark.parametrize("kind", NO_REAL_NUMBERS)
def test_dates_durations_and_complex_numbers_are_no_features(kind, read, tmp_path):
    with pytest.raises(ValueError, match=r"column when holds no numbers: leave it out with ignore=\['when'\]"):
        read({**ROWS, "when": NO_REAL_NUMBERS[kind]}, tmp_path)
    if read is read_pandas:
        with pytest.raises(ValueError, match="column when holds no numbers"):
            read({**ROWS, "when": list(NO_REAL_NUMBERS[kind])}, tmp_path)


def test_a_column_of_dates_that_is_named_as_a_feature_is_refused_with_its_row(tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({**ROWS, "when": NO_REAL_NUMBERS["dates"]})
    with pytest.raises(ValueError, match="row 1: column 'when' is 'datetime64', not a number"):
        ft.data.from_pandas(frame, client="user", label="paid", features=["age", "when"])


def test_clients_and_labels_that_are_dates_have_the_names_of_the_dates():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    days = np.array(["2020-01-02", "2020-01-01"], "M8[ns]")
    data = ft.data.from_pandas(
        pandas.DataFrame({"day": days, "age": [1, 2], "until": days}), client="day", label="until"
    )
    assert list(data.names) == ["2020-01-01 00:00:00", "2020-01-02 00:00:00"] == data.classes
    with pytest.raises(ValueError, match="row 1: column 'wave' is a complex, not a text or a number"):
        ft.data.from_pandas(pandas.DataFrame({"age": [1.0], "wave": [1j]}), client=None, label="wave")
    missing = pandas.DataFrame({"day": pandas.to_datetime(["2020-01-02", None]), "age": [1, 2], "paid": [0, 1]})
    with pytest.raises(ValueError, match="row 2: column 'day' is missing"):
        ft.data.from_pandas(missing, client="day", label="paid")


@pytest.mark.parametrize("read", [read_csv, read_json_lines, read_pandas])
def test_one_text_in_a_column_of_numbers_is_refused_with_its_row(read, tmp_path):
    rows = {name: values * 80 for name, values in ROWS.items()}
    rows["height"] = [*rows["height"][:149], "N/A", *rows["height"][150:]]
    message = r"row 150: column 'height' is 'N/A', not a number: correct it, or leave .*\(--ignore height\)"
    with pytest.raises(ValueError, match=message):
        read(rows, tmp_path)


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        ([0.0, 0.5, 1.0], r"row 2: column 'x' has the shape \(3,\), the rows before it \(4,\): pad them"),
        ([[0.0, 0.5], [1.0]], "row 2: column 'x' is 'list', not a number"),
    ],
)
@pytest.mark.parametrize("roles", [{}, {"image": "x"}])
def test_a_leaf_image_of_another_length_is_refused_with_its_row(odd, message, roles, tmp_path):
    user = {"x": [[0.0, 0.5, 1.0, 0.25], odd, [0.0, 0.5, 1.0, 0.25]], "y": [0, 1, 1]}
    content = {"users": ["ann"], "num_samples": [3], "user_data": {"ann": user}}
    (tmp_path / "femnist.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=rf"femnist.json, {message}"):
        ft.data.from_leaf(tmp_path / "femnist.json", **roles)


def femnist(folder, users):
    """LEAF's layout of FEMNIST, 4 pixels per image."""
    folder.mkdir(parents=True)
    data = {user: {"x": [[0.0, 0.5, 1.0, 0.25]] * len(labels), "y": labels} for user, labels in users.items()}
    counts = [len(labels) for labels in users.values()]
    (folder / "all_data_0.json").write_text(
        json.dumps({"users": list(users), "num_samples": counts, "user_data": data})
    )


def test_a_leaf_folder_has_splits_users_and_square_images(tmp_path):
    femnist(tmp_path / "data" / "train", {"f0002": [3, 61], "f0001": [0]})
    femnist(tmp_path / "data" / "test", {"f0002": [7]})
    splits = ft.data.from_leaf(tmp_path / "data", image="x")
    assert list(splits) == ["train", "test"] and list(splits["train"].names) == ["f0001", "f0002"]
    assert splits["train"].columns["x"].shape == (3, 2, 2, 1)
    assert splits["train"].client(1)["y"].tolist() == [3, 61] and splits["test"].columns["y"].tolist() == [7]
    assert ft.data.from_leaf(tmp_path / "data" / "train").columns["x"].shape == (3, 4)


def test_leaf_texts_are_refused_without_text_and_become_bags_of_words_with_it(tmp_path):
    tweets = {"ann": {"x": ["good day", "bad day"], "y": [1, 0]}}
    content = {"users": ["ann"], "num_samples": [2], "user_data": tweets}
    (tmp_path / "sent140.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"column x holds no numbers: .*or use it as label=, text= or image="):
        ft.data.from_leaf(tmp_path / "sent140.json")
    data = ft.data.from_leaf(tmp_path / "sent140.json", text="x")
    assert data.vocabularies["words"] == ["day", "bad", "good"]
    assert [row.tolist() for row in data.client(0)["words"]] == [[2, 0], [1, 0]]
    assert data.client(0)["y"].tolist() == [1, 0]


def images(folder, names, size=(4, 6)):
    for position, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, (255, 51 * position, 0)).save(folder / name)


def test_images_are_in_folders_of_classes_and_clients_or_splits(tmp_path):
    images(tmp_path / "plain", ["cat/1.png", "dog/1.png", "dog/2.png"])
    plain = ft.data.from_images(tmp_path / "plain")
    assert plain.classes == ["cat", "dog"] and plain.columns["y"].tolist() == [0, 1, 1] and plain.names is None
    assert plain.columns["x"].shape == (3, 6, 4, 3)
    assert plain.columns["x"][1, 0, 0].tolist() == [1.0, np.float32(51 / 255), 0.0]
    images(tmp_path / "clients", ["ann/cat/1.png", "bob/dog/1.png", "bob/cat/1.png"])
    clients = ft.data.from_images(tmp_path / "clients", client="folder")
    assert list(clients.names) == ["ann", "bob"] and clients.client(1)["y"].tolist() == [0, 1]
    images(tmp_path / "splits", ["train/cat/1.png", "train/dog/1.png", "test/dog/1.png"])
    splits = ft.data.from_images(tmp_path / "splits")
    assert splits["test"].columns["y"].tolist() == [1] and splits["train"].examples == 2


def test_images_of_different_sizes_are_refused_and_resized_on_request(tmp_path):
    images(tmp_path, ["cat/1.png"])
    images(tmp_path, ["dog/1.png"], size=(8, 8))
    with pytest.raises(ValueError, match=r"row 2: column 'image' has the size \(8, 8, 3\).* give image_shape"):
        ft.data.from_images(tmp_path)
    assert ft.data.from_images(tmp_path, image_shape=(5, 5)).columns["x"].shape == (2, 5, 5, 3)
    assert ft.data.from_images(tmp_path, image_shape=(5, 5, 1)).columns["x"].shape == (2, 5, 5, 1)


def test_a_table_can_name_image_files(tmp_path):
    images(tmp_path, ["pictures/1.png", "pictures/2.png"])
    (tmp_path / "rows.csv").write_text("user,file,kind\na,pictures/1.png,cat\nb,pictures/2.png,dog\n")
    read = lambda: ft.data.from_csv(tmp_path / "rows.csv", client="user", image="file", label="kind")
    assert read().columns["x"].shape == (2, 6, 4, 3)
    (tmp_path / "pictures/2.png").unlink()
    with pytest.raises(ValueError, match=r"row 2: column 'file' cannot be read as an image .*No such file"):
        read()


def test_pixels_in_columns_become_images_from_0_to_1(tmp_path):
    rows = {"user": ["a", "b"], "paid": [0, 1], **{f"p{i}": [0, 255] for i in range(12)}}
    (tmp_path / "rows.csv").write_text(csv_text(rows))
    data = ft.data.from_csv(tmp_path / "rows.csv", client="user", label="paid", image_shape=(2, 2))
    assert data.columns["x"].shape == (2, 2, 2, 3) and data.client(1)["x"].max() == 1.0
    with pytest.raises(ValueError, match=r"12 numbers per row are no images of shape \(5, 2\)"):
        ft.data.from_csv(tmp_path / "rows.csv", client="user", label="paid", image_shape=(5, 2))


def test_an_archive_with_splits_gives_splits(tmp_path):
    arrays = {"x_train": np.full((3, 2, 2), 255, np.uint8), "y_train": np.array([0, 1, 2])}
    np.savez(tmp_path / "d.npz", **arrays, x_test=np.zeros((1, 2, 2), np.uint8), y_test=np.array([2]))
    splits = ft.data.from_npz(tmp_path / "d.npz", client=None, image="x", label="y")
    assert splits["train"].columns["x"].shape == (3, 2, 2, 1) and splits["train"].columns["x"].max() == 1.0
    assert splits["test"].columns["y"].tolist() == [2] and splits["train"].names is None
    np.savez(tmp_path / "bad.npz", x=np.zeros(3), y=np.zeros(2))
    with pytest.raises(ValueError, match=r"arrays of unequal length \{'x': 3, 'y': 2\}"):
        ft.data.from_npz(tmp_path / "bad.npz", client=None, label="y")
    np.savez(tmp_path / "objects.npz", x=np.array([{}], object))
    with pytest.raises(ValueError, match="holds Python objects"):
        ft.data.from_npz(tmp_path / "objects.npz", client=None, label="y")
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(ValueError, match="not a NumPy archive"):
        ft.data.from_npz(tmp_path / "text.npz", client=None, label="y")


def test_tff_files_of_both_kinds_give_the_same_clients(tmp_path):
    clients = {"f1": [(3, [0.0, 0.5, 1.0, 0.25]), (9, [1.0] * 4)], "f2": [(3, [0.5] * 4)]}
    rows = [
        ("train", client, generated.encode_example({"label": [label], "pixels": pixels}))
        for client, examples in clients.items()
        for label, pixels in examples
    ]
    test = ("test", "f2", generated.encode_example({"label": [1], "pixels": [0.0] * 4}))
    sqlite = generated.write_sqlite(tmp_path / "emnist.sqlite", [*rows, test])
    splits = ft.data.from_tff(sqlite, image="pixels", label="label")
    arrays = {
        client: {"label": [label for label, _ in examples], "pixels": np.float32([p for _, p in examples])}
        for client, examples in clients.items()
    }
    hdf5 = ft.data.from_tff(generated.write_hdf5(tmp_path / "emnist_train.h5", arrays), image="pixels", label="label")
    assert splits["test"].examples == 1
    for client in range(2):
        for column in ("x", "y"):
            np.testing.assert_array_equal(splits["train"].client(client)[column], hdf5.client(client)[column])
    assert hdf5.columns["x"].shape == (3, 2, 2, 1) and hdf5.client(0)["y"].tolist() == [3, 9]


def test_hugging_face_splits_classes_and_images(tmp_path):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    features = datasets.Features(
        {
            "user": datasets.Value("string"),
            "picture": datasets.Image(),
            "kind": datasets.ClassLabel(names=["owl", "cat"]),
        }
    )
    rows = {"user": ["b", "a"], "picture": [Image.new("RGB", (2, 3), (255, 0, 0))] * 2, "kind": [1, 0]}
    dataset = datasets.Dataset.from_dict(rows, features=features)
    splits = ft.data.from_huggingface(
        datasets.DatasetDict({"train": dataset, "test": dataset.select([1])}),
        client="user",
        image="picture",
        label="kind",
    )
    assert splits["train"].classes == ["owl", "cat"]  # its order, not ours
    assert splits["train"].client(1)["y"].tolist() == [1] and splits["test"].columns["y"].tolist() == [0]
    assert splits["train"].columns["x"].shape == (2, 3, 2, 3)
    unlabelled = dataset.map(lambda row: {"kind": -1})
    with pytest.raises(ValueError, match="row 1: column 'kind' is missing"):
        ft.data.from_huggingface(unlabelled, client="user", image="picture", label="kind")


def test_without_pyarrow_parquet_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "rows.parquet").write_bytes(b"")
    with pytest.raises(ValueError, match=r"need pyarrow: pip install 'fedtrue\[data\]'"):
        ft.data.from_parquet(tmp_path / "rows.parquet", client="user", label="paid")


def test_a_damaged_parquet_file_is_named(tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    (tmp_path / "rows.parquet").write_bytes(b"no parquet")
    with pytest.raises(ValueError, match=r"rows.parquet is not a readable Parquet file"):
        ft.data.from_parquet(tmp_path / "rows.parquet", client="user", label="paid")


def test_sentences_are_examples_and_their_words_are_numbered_by_frequency(tmp_path):
    (tmp_path / "p.jsonl").write_text('{"user": "a", "text": "A dog. A cat and a dog!", "likes": 3}\n')
    data = ft.data.from_json_lines(tmp_path / "p.jsonl", client="user", text="text", words=2)
    assert data.vocabularies["tokens"] == ["a", "dog"]
    begin, unknown, end = 4, 3, 5  # after the two words
    assert data.client(0)["tokens"][0, :5].tolist() == [begin, 1, 2, end, 0]
    assert data.client(0)["tokens"][1, :8].tolist() == [begin, 1, unknown, unknown, 1, 2, end, 0]


def test_texts_without_a_known_tag_are_left_out(tmp_path):
    lines = [
        {"user": "a", "text": "one two", "tags": ["x", "y"]},
        {"user": "b", "text": "two", "tags": []},
        {"user": "a", "text": "three", "tags": "x, z"},
    ]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, lines)))
    data = ft.data.from_json_lines(tmp_path / "p.jsonl", client="user", text="text", tags="tags")
    assert list(data.names) == ["a"] and data.vocabularies["tags"] == ["x", "y", "z"]
    assert [row.tolist() for row in data.client(0)["tags"]] == [[0, 1], [0, 2]]


def test_numbers_with_a_fraction_cannot_be_the_labels_of_texts(tmp_path):
    (tmp_path / "p.jsonl").write_text('{"user": "a", "text": "good", "stars": 4.5}\n')
    with pytest.raises(ValueError, match="column 'stars' holds numbers with a fraction"):
        ft.data.from_json_lines(tmp_path / "p.jsonl", client="user", text="text", label="stars")


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ({"text": "a", "image": "b"}, "image and text exclude each other"),
        ({"tags": "a"}, "tags are predicted from a text"),
        ({"text": "a", "tags": "b", "label": "c"}, "tags are predicted from a text"),
        ({"classes": ["a"]}, "classes are the names of labels"),
        ({"label": "a", "image_shape": (3,)}, r"image_shape is \(3,\)"),
        ({"text": "a", "words": 0}, "words is 0"),
    ],
)
def test_roles_that_do_not_go_together_are_refused(roles, message, tmp_path):
    (tmp_path / "rows.csv").write_text("a,b,c\n1,2,3\n")
    with pytest.raises(ValueError, match=message):
        ft.data.from_csv(tmp_path / "rows.csv", client=None, **roles)


def test_data_without_clients_can_be_partitioned_and_keeps_its_classes(tmp_path):
    (tmp_path / "rows.csv").write_text("age,paid\n" + "".join(f"{i},{'yes' if i % 3 else 'no'}\n" for i in range(30)))
    central = ft.data.from_csv(tmp_path / "rows.csv", client=None, label="paid")
    parts = ft.data.partition.shards(central.values("y"), clients=5, seed=0, shards_per_client=1)
    data = central.regrouped(parts)
    assert len(data) == 5 and data.examples == 30 and data.classes == ["no", "yes"]
    assert all(len(set(data.client(i)["y"].tolist())) == 1 for i in range(5))
    assert sorted(data.values("x")[:, 0].tolist()) == list(range(30))
