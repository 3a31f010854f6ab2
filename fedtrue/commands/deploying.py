"""`fedtrue deploy`."""

from typing import Any

from rich.console import Console

from fedtrue.commands.answer import Answer


def new(options: Any) -> Answer:
    """Writes a Flower app."""
    from fedtrue.flower.project import new_project

    files = new_project(options.folder, options.framework)

    def show() -> None:
        console = Console(highlight=False, soft_wrap=True)
        console.print(f"wrote {', '.join(file.name for file in files)} into {options.folder}", markup=False)
        console.print(f"next: {options.folder / 'README.md'} says how to run it", markup=False)

    return Answer({"folder": str(options.folder), "files": [file.name for file in files]}, show)
