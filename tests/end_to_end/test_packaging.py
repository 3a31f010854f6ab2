"""The wheel and the source distribution: what they hold, and that the wheel works where the repository is not."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import fedtrue
from fedtrue.cli import main
from fedtrue.data.locations import MissingData

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SOURCES = ("fedtrue", "tests", "docs", "examples", "experiments", "benchmarks")
NOT_SOURCES = shutil.ignore_patterns("__pycache__", "*.egg-info", ".venvs")
PLOTLY_IS_MISSING = "fedtrue: this command needs plotly, which is not installed: pip install plotly\n"
HEAVY = ("matplotlib", "plotly", "PIL", "h5py", "tensorboardX", "ray")  # what no training on quadratics needs


def run(command, cwd):
    """Runs a program that does not see the repository."""
    environment = {**os.environ, "PYTHONPATH": ""}
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=900)


def succeeded(done):
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the source distribution: the second from a copy of the sources, the first from the second."""
    pytest.importorskip("build", reason="build is not installed: pip install build 'setuptools>=77'")
    folder = tmp_path_factory.mktemp("built")
    sources = folder / "sources"
    for name in SOURCES:
        shutil.copytree(ROOT / name, sources / name, ignore=NOT_SOURCES)
    for path in filter(Path.is_file, ROOT.iterdir()):
        shutil.copy(path, sources)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", sources]
    succeeded(run(command, folder))
    (wheel,), (archive,) = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    return wheel, archive


def files_below(folder):
    """Relative paths of the files of the repository that are not made by running them."""
    found = (path.relative_to(ROOT) for path in (ROOT / folder).rglob("*") if path.is_file())
    return {str(path) for path in found if not {"__pycache__", ".venvs"} & set(path.parts)}


def test_the_wheel_holds_the_package_and_nothing_else(built):
    names = {name for name in zipfile.ZipFile(built[0]).namelist() if ".dist-info/" not in name}
    assert names == files_below("fedtrue")
    assert {"fedtrue/py.typed", "fedtrue/reports/web/page.html", "fedtrue/reports/web/page.css"} <= names


def test_the_source_distribution_holds_what_building_and_testing_need(built):
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile", "mkdocs.yml"} <= names
    for folder in ("fedtrue", "tests", "docs", "examples", "experiments"):
        assert files_below(folder) - names == set(), folder


def test_the_metadata_is_complete(built):
    wheel = zipfile.ZipFile(built[0])
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(wheel.read(name).decode())
    assert metadata["Version"] == fedtrue.__version__
    assert metadata["Summary"] == PROJECT["description"]
    assert metadata["License-Expression"] == "Apache-2.0" and metadata["License-File"] == "LICENSE"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload().strip() == (ROOT / "README.md").read_text().strip()
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    assert set(metadata.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
    required = [entry for entry in metadata.get_all("Requires-Dist") if "extra ==" not in entry]
    assert len(required) == len(PROJECT["dependencies"])


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """An environment with fedtrue from the wheel, and this environment's packages besides; its `bin` folder."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    packages = succeeded(run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder)).strip()
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
    succeeded(run([*pip, "--disable-pip-version-check", built[0]], folder))
    dependencies = {str(path) for path in map(Path, sys.path) if path.name in ("site-packages", "dist-packages")}
    (Path(packages) / "dependencies.pth").write_text("\n".join(sorted(dependencies)))
    return python.parent


def test_the_installed_package_is_the_one_from_the_wheel(installed, tmp_path):
    program = "import fedtrue, pathlib; print(pathlib.Path(fedtrue.__file__).resolve())"
    path = Path(succeeded(run([installed / "python", "-c", program], tmp_path)).strip())
    assert installed.parent in path.parents and ROOT not in path.parents


def blocking(names):
    """A program's first lines: importing these packages fails as if they were not installed."""
    return f"import sys; sys.modules.update(dict.fromkeys({names!r}))\nfrom fedtrue.cli import main\n"


def test_training_needs_no_heavy_package(installed, tmp_path):
    program = blocking(HEAVY) + "sys.exit(main(['run', 'quadratic', '--rounds', '2', '--out', 'run']))"
    succeeded(run([installed / "python", "-c", program], tmp_path))
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_a_command_names_the_package_that_it_misses(tmp_path, monkeypatch, capsys):
    assert main(["run", "quadratic", "--rounds", "2", "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    for name in ("plotly", "plotly.offline"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "report.html")]) == 2
    assert capsys.readouterr().err == PLOTLY_IS_MISSING


@pytest.mark.slow
@pytest.mark.parametrize(
    "missing, arguments, cure",
    [
        ("plotly", "report run", PLOTLY_IS_MISSING),
        (
            "matplotlib",
            "theory curves -o curves.png",
            PLOTLY_IS_MISSING.replace("plotly", "matplotlib"),
        ),
        (
            "tensorboardX",
            "run quadratic --rounds 2 --tensorboard --out other",
            "fedtrue: TensorBoard needs a package: pip install 'fedtrue[tensorboard]'\n",
        ),
    ],
)
def test_a_missing_package_is_one_line_with_its_cure(missing, arguments, cure, installed, tmp_path):
    succeeded(run([installed / "fedtrue", "run", "quadratic", "--rounds", "2", "--out", "run"], tmp_path))
    program = blocking([missing]) + f"sys.exit(main({arguments.split()!r}))"
    done = run([installed / "python", "-c", program], tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.endswith(cure) and done.stderr.count("fedtrue: ") == 1


@pytest.mark.slow
def test_the_commands_of_the_readme_work_without_the_repository(installed, tmp_path):
    try:
        fedtrue.tasks.shakespeare()
    except MissingData as error:
        pytest.skip(str(error))
    program = installed / "fedtrue"
    assert "shakespeare" in succeeded(run([program, "tasks"], tmp_path))
    assert "scaffold" in succeeded(run([program, "methods"], tmp_path))
    train = [program, "run", "shakespeare", "--rounds", "2", "--evaluation-limit", "50", "--out", "run"]
    succeeded(run(train, tmp_path))
    succeeded(run([program, "report", "run", "-o", "report.html"], tmp_path))
    page = (tmp_path / "report.html").read_text()
    assert re.search(r"<title>.*shakespeare", page) and "Plotly" in page


@pytest.mark.slow
def test_the_tests_of_the_source_distribution_run(built, tmp_path):
    with tarfile.open(built[1]) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    command = [sys.executable, "-m", "pytest", "-q", "--quick-compilation", "tests/golden", "tests/test_design.py"]
    succeeded(run([*command, "tests/experiments", "-m", "not slow"], folder))
