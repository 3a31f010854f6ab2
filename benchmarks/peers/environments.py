"""One environment per peer, created on first use in benchmarks/.venvs from requirements/<name>.txt."""

import subprocess
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = HERE.parent / ".venvs"


def folder(name: str) -> Path:
    """The folder of the environment's programs; installs it if it does not exist or its requirements changed."""
    requirements = HERE / "requirements" / f"{name}.txt"
    environment = ENVIRONMENTS / name
    made_of = environment / "made-of.txt"
    if not (made_of.exists() and made_of.read_text() == requirements.read_text()):
        print(
            f"installing {', '.join(requirements.read_text().split())} into {environment.name} (minutes)",
            flush=True,
        )
        venv.create(environment, clear=True, symlinks=True, with_pip=True)
        install = [environment / "bin" / "python", "-m", "pip", "install", "--quiet", "--requirement", requirements]
        if subprocess.run(install).returncode:
            raise SystemExit(f"{requirements.name} could not be installed: see pip's output above")
        made_of.write_text(requirements.read_text())
    return environment / "bin"
