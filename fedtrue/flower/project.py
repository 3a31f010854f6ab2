"""`fedtrue deploy new`: a complete small Flower app."""

import re
from pathlib import Path
from string import Template

from fedtrue.names import look_up

FRAMEWORKS = {"jax": "fedtrue[flower]", "torch": "fedtrue[flower,torch]"}  # → what a machine needs
SHARED = ("pyproject.toml", "README.md")
OWN = ("task.py", "client_app.py", "server_app.py")
TEMPLATES = Path(__file__).parent / "templates"


def new_project(folder: Path, framework: str = "jax") -> list[Path]:
    """Writes the app's files into a new folder; returns their paths. A folder with anything in it is refused."""
    install = look_up("framework", FRAMEWORKS, framework)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} already exists and is not an empty folder: give a new one")
    values = {"name": project_name(folder), "install": install}
    files = {name: TEMPLATES / f"{name}.txt" for name in SHARED}
    files |= {name: TEMPLATES / framework / f"{name}.txt" for name in OWN}
    folder.mkdir(parents=True, exist_ok=True)
    for name, template in files.items():
        (folder / name).write_text(Template(template.read_text()).substitute(values))
    return [folder / name for name in files]


def project_name(folder: Path) -> str:
    """The folder's name in the letters that Flower takes."""
    return re.sub(r"[^a-z0-9]+", "-", folder.absolute().name.lower()).strip("-") or "federation"
