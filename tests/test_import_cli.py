"""`fedtrue data import`, then run, resume, sweep and diagnose with no Python at all."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import fedtrue as ft
from fedtrue.cli import main
from fedtrue.data import locations
from fedtrue.data.batches import device_rows
from fedtrue.runner.build import load_task
from fedtrue.runner.resolve import resolved
from fedtrue.runner.settings import RunConfig, change, set_one


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDTRUE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("FEDTRUE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(locations, "_user_folder", lambda: tmp_path / "user")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def flowers(tmp_path):
    """Three species whose petals differ, in units of thousands; ten gardens."""
    generator, names = np.random.default_rng(0), ["daisy", "rose", "tulip"]
    lines = ["garden,petal,leaf,species"]
    for row in range(300):
        kind = generator.integers(3)
        lines.append(f"g{row % 10},{1000 * kind + generator.normal(0, 100):.1f},{generator.normal():.3f},{names[kind]}")
    (tmp_path / "flowers.csv").write_text("\n".join(lines))
    return tmp_path / "flowers.csv"


def answer(capsys, *arguments):
    """What a command prints with --json."""
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def import_flowers(capsys, *arguments):
    return answer(capsys, "data", "import", "flowers", "flowers.csv", "--label", "species", *arguments)


def test_two_commands_train_on_a_csv_file(flowers, capsys, tmp_path):
    imported = import_flowers(capsys, "--client", "garden", "--test-fraction", "0.2")
    assert imported["class_names"] == ["daisy", "rose", "tulip"] and imported["models"] == ["mlp", "logistic"]
    assert imported["splits"]["train"]["clients"] == 10
    facts = answer(capsys, "run", "flowers", "--model", "logistic", "--rounds", "20", "--out", "runs/first")
    assert facts["final.test.accuracy"] > 0.8  # guessing: a third
    config = ft.load_run("runs/first").config
    assert config["task"] == "flowers" and config["task_options"] == {"model": "logistic"}
    again = answer(capsys, "run", "runs/first/config.toml")
    assert again["final.train.loss"] == facts["final.train.loss"]  # the run can be rebuilt, bit for bit
    assert answer(capsys, "resume", "runs/first")["rounds"] == 20
    diagnosis = answer(capsys, "diagnose", "runs/first", "--orders", "2")
    assert diagnosis["task"] == "flowers"


def test_a_damaged_data_set_is_listed_as_damaged_beside_the_others(flowers, capsys, tmp_path):
    import_flowers(capsys, "--client", "garden")
    answer(capsys, "data", "import", "others", "flowers.csv", "--label", "species", "--client", "garden")
    (tmp_path / "data" / "imported" / "flowers" / "train" / "x.npy").unlink()
    tasks = {task["name"]: task for task in answer(capsys, "tasks")}
    data_sets = {record["data"]: record for record in answer(capsys, "data", "list")}
    for text in (tasks["flowers"]["summary"], data_sets["flowers"]["here"]):
        assert text.endswith("is damaged: import the data set again with --replace")
    assert tasks["others"]["summary"].startswith("your data (csv)")


def test_model_is_short_for_the_option_of_the_task():
    config = change(RunConfig("flowers"), {"model": "mlp"}, "command line")
    assert config.task_options == {"model": "mlp"}
    assert set_one(config, "model.hidden", 4, "--set").task_options == {"model": {"name": "mlp", "hidden": 4}}
    assert change(config, {"model": {"name": "cnn"}}, "sweep").task_options == {"model": "cnn"}


@pytest.mark.slow  # two programs; its settings are above
def test_a_sweep_over_models_and_their_options(flowers, capsys, tmp_path):
    import_flowers(capsys, "--client", "garden")
    (tmp_path / "sweep.toml").write_text(
        'task = "flowers"\nrounds = 2\n[sweep.product]\nmodel = ["logistic", {name = "mlp", hidden = 4}]\n'
    )
    assert main(["sweep", "sweep.toml", "--out", "runs/sweep"]) == 0
    capsys.readouterr()
    models = [
        ft.load_run(folder).config["task_options"]["model"]
        for folder in sorted((tmp_path / "runs/sweep").iterdir())
        if folder.is_dir()
    ]
    assert sorted(map(str, models)) == ["logistic", "{'name': 'mlp', 'hidden': 4}"]


@pytest.fixture
def every_kind(capsys, tmp_path):
    """A small data set of every kind: name → settings that make its default model small."""
    for number in range(12):
        folder = tmp_path / "pictures" / "ab"[number % 2]
        folder.mkdir(exist_ok=True, parents=True)
        Image.new("L", (8, 8), 20 * number).save(folder / f"{number}.png")
    text = "A dog barks. It runs!"
    posts = [{"user": f"u{i % 3}", "text": text, "tags": ["dog"], "mood": "ab"[i % 2]} for i in range(12)]
    (tmp_path / "posts.jsonl").write_text("\n".join(map(json.dumps, posts)))
    prices = "".join(f"s{i % 3},{i},{i * 1e5 + 0.5}\n" for i in range(12))
    (tmp_path / "price.csv").write_text("shop,size,price\n" + prices)
    by_user = ["posts.jsonl", "--client", "user", "--text", "text"]
    kinds = {
        "images": ["pictures", "--partition", "iid", "--clients", "2"],
        "words": by_user,
        "tags": [*by_user, "--tags", "tags"],
        "moods": [*by_user, "--label", "mood"],
        "prices": ["price.csv", "--client", "shop", "--label", "price"],
    }
    for name, arguments in kinds.items():
        answer(capsys, "data", "import", name, *arguments, "--test-fraction", "0.3")
    small = {"words": {"hidden": 4, "embedding": 4, "projection": 4}, "prices": {"hidden": 4}}
    return {name: small.get(name, {}) for name in kinds}


METRICS = {
    "images": {"loss", "accuracy"},
    "words": {"loss", "accuracy", "accuracy_with_eos", "accuracy_with_eos_and_oov"},
    "tags": {"loss", "recall_at_5"},
    "moods": {"loss", "accuracy"},
    "prices": {"loss"},
}


def test_every_kind_of_data_has_a_default_model_with_gradients_and_metrics(every_kind):
    """Traced only: what it computes is in the slow test below."""
    for name, options in every_kind.items():
        task = ft.tasks.imported(name, model=options)
        batch = device_rows(task.train.columns, task.train.starts[:1] + np.arange(2))
        batch = {**batch, "mask": jnp.ones(2), "key": jax.random.key(0)}
        params = jax.eval_shape(task.init, jax.random.key(1))
        gradient, _ = jax.eval_shape(jax.grad(task.loss, has_aux=True), params, batch)
        assert jax.tree.map(lambda leaf: leaf.shape, gradient) == jax.tree.map(lambda leaf: leaf.shape, params)
        assert set(jax.eval_shape(task.metrics, params, batch)) == METRICS[name]
        assert task.test is not None and task.spec["name"] == name


def test_a_run_folder_records_the_model_that_was_chosen_by_default(flowers, capsys):
    import_flowers(capsys, "--client", "garden")
    record = lambda **options: resolved(RunConfig("flowers", options), load_task(RunConfig("flowers", options)))
    assert record().task_options == {"model": "mlp"}
    assert record(model={"hidden": 4}).task_options == {"model": {"name": "mlp", "hidden": 4}}


@pytest.mark.slow  # five programs
def test_every_kind_of_data_trains_with_its_default_model(every_kind, capsys):
    for name, options in every_kind.items():
        settings = [part for key, value in options.items() for part in ("--set", f"model.{key}={value}")]
        facts = answer(capsys, "run", name, "--rounds", "1", *settings)
        assert all(np.isfinite(facts[f"final.test.{metric}"]) for metric in METRICS[name]), name
        assert facts["dropped_clients"] == 0


def test_imported_data_is_listed_and_shown(flowers, capsys, tmp_path):
    import_flowers(capsys, "--ignore", "garden", "--partition", "dirichlet", "--clients", "6", "--alpha", "0.1")
    listed = {entry["name"]: entry for entry in answer(capsys, "tasks")}
    assert "features, 6 clients" in listed["flowers"]["summary"] and "3 classes" in listed["flowers"]["summary"]
    assert answer(capsys, "data", "list")[-1]["from"] == "your csv"
    shown = answer(capsys, "data", "show", "flowers", "--picture", "who.png")
    assert shown["train"]["clients"] == 6 and shown["classes"] == ["daisy", "rose", "tulip"]
    assert shown["imported"]["partition"] == {
        "name": "dirichlet",
        "clients": 6,
        "options": {"alpha": 0.1},
        "coarse": None,
        "seed": 0,
    }
    assert shown["holdings"] == "who.png" and (tmp_path / "who.png").stat().st_size > 10_000
    assert main(["data", "show", "flowers"]) == 0
    assert "y = " in capsys.readouterr().out


def test_examples_of_images_are_drawn_only_where_a_file_is_named(every_kind, capsys, tmp_path):
    before = sorted(tmp_path.iterdir())
    assert "picture" not in answer(capsys, "data", "show", "images")
    assert main(["data", "show", "images"]) == 0
    assert "examples are images: -o FILE.png draws them" in capsys.readouterr().out
    assert sorted(tmp_path.iterdir()) == before
    assert answer(capsys, "data", "show", "images", "-o", "seen.png")["picture"] == "seen.png"
    assert (tmp_path / "seen.png").read_bytes().startswith(b"\x89PNG")
    assert main(["data", "show", "prices", "-o", "seen.png"]) == 2
    assert "prices has no images to draw: leave out -o" in capsys.readouterr().err


def test_the_format_is_guessed_from_the_name_and_leaf_has_splits(capsys, tmp_path):
    for split, users in {"train": {"f1": [0, 3], "f2": [2]}, "test": {"f1": [1]}}.items():
        (tmp_path / "femnist" / split).mkdir(parents=True)
        data = {user: {"x": [[0.5] * 64] * len(labels), "y": labels} for user, labels in users.items()}
        counts = [len(labels) for labels in users.values()]
        content = {"users": list(users), "num_samples": counts, "user_data": data}
        (tmp_path / "femnist" / split / "all_0.json").write_text(json.dumps(content))
    found = answer(capsys, "data", "import", "femnist", "femnist", "--image", "x")
    assert (found["format"], found["kind"], found["classes"]) == ("leaf", "image", 4)
    assert found["columns"]["x"]["shape"] == [8, 8, 1]
    assert found["splits"] == {"train": {"clients": 2, "examples": 3}, "test": {"clients": 1, "examples": 1}}
    files = ["femnist/train/all_0.json", "--test", "femnist/test/all_0.json"]
    assert answer(capsys, "data", "import", "femnist2", *files)["splits"] == found["splits"]


def test_a_hugging_face_folder_is_read_without_the_library(capsys, tmp_path):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    features = datasets.Features(
        {
            "user": datasets.Value("string"),
            "age": datasets.Value("float32"),
            "kind": datasets.ClassLabel(names=["owl", "cat"]),
        }
    )
    rows = {"user": ["a", "b", "a"], "age": [1.0, 2.0, 3.0], "kind": [1, 0, 1]}
    dataset = datasets.Dataset.from_dict(rows, features=features)
    datasets.DatasetDict({"train": dataset, "test": dataset}).save_to_disk(str(tmp_path / "saved"))
    found = answer(capsys, "data", "import", "birds", "saved", "--client", "user", "--label", "kind")
    assert (found["format"], found["class_names"]) == ("huggingface", ["owl", "cat"])
    assert found["splits"]["test"]["examples"] == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.csv"], "nowhere.csv does not exist"),
        (["flowers.csv", "--format", "cvs"], "did you mean 'csv'"),
        (["flowers.csv", "--client", "gardn", "--label", "species"], "no column 'gardn' (did you mean 'garden'?)"),
        (["flowers.csv", "--client", "garden"], "nothing to learn: give --label COLUMN"),
        (["flowers.csv", "--label", "species"], "the data has no clients: give --client COLUMN, or --partition"),
        (["flowers.csv", "--label", "petal", "--client", "garden"], "column species holds no numbers"),
        (["flowers.csv", "--clients", "3"], "--clients belongs to a partition: give --partition NAME"),
        (["flowers.csv", "--partition", "iid"], "--partition iid needs a number of clients: --clients 100"),
        (["flowers.csv", "--image-shape", "28"], "image_shape is (28,): give (height, width)"),
        (["flowers.csv", "--image-shape", "a,b"], "--image-shape takes HEIGHT,WIDTH"),
        (["flowers.csv", "--test-fraction", "2", "--client", "garden", "--label", "species"], "test fraction is 2.0"),
        (["flowers.csv", "--site", "beer"], "--site is for"),
        (
            [
                "flowers.csv",
                "--test",
                "flowers.csv",
                "--test-fraction",
                "0.1",
                "--label",
                "species",
                "--client",
                "garden",
            ],
            "there is test data already",
        ),
    ],
)
def test_wrong_imports_are_one_line_and_write_nothing(arguments, message, flowers, capsys, tmp_path):
    assert main(["data", "import", "flowers", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not list((tmp_path / "data").glob("imported/[!.]*"))


def test_names_of_tasks_are_refused(flowers, capsys):
    assert main(["data", "import", "mnist", "flowers.csv", "--client", "garden", "--label", "species"]) == 2
    assert "'mnist' is the name of a task" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["run", "flowers", "--model", "cnn"],
            "cnn needs images, but flowers has features: import it again with --image",
        ),
        (["run", "flowers", "--model", "mpl"], "did you mean 'mlp'"),
        (["run", "flowers", "--set", "model.hiden=3"], "model 'mlp' has no hiden (did you mean 'hidden'?)"),
        (["run", "flowers", "--set", "model.hidden=0"], "hidden is 0: choose at least 1"),
        (["run", "flowers", "--set", "task_options.modell=mlp"], "flowers has no modell (did you mean 'model'?)"),
        (["run", "flower"], "task 'flower' is not known (did you mean 'flowers'?)"),
        (["run", "quadratic", "--model", "cnn"], "quadratic has no model"),
        (["run", "mnist", "--set", "model.hidden=3"], "model {'hidden': 3} is not known; choose one of: logistic, cnn"),
        (["data", "show", "flowers", "--picture", "who.gif"], "who.gif has no known ending: give a .png"),
    ],
)
def test_wrong_models_of_imported_data_are_one_line(arguments, message, flowers, capsys):
    import_flowers(capsys, "--client", "garden")
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
