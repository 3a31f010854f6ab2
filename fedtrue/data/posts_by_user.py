"""Posts of several sites joined by user: one JSON object `{user: [{"t": title, "b": text, "tags": [...]}, …]}`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedtrue.data.compressed import damaged, open_binary


def read(path: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (user, {title, text, tags}), users and posts in the order of the file, which is plain or compressed.

    The single JSON object must be parsed at once: memory is a few times the unpacked file.
    """
    path = Path(path)
    with open_binary(path) as stream:
        try:
            posts_by_user = json.load(stream)
        except ValueError as error:  # JSON and UTF-8 errors are both ValueErrors
            raise damaged(path, f"not JSON, {error}") from error
    if not isinstance(posts_by_user, dict):
        raise ValueError(
            f"{path} is a JSON {type(posts_by_user).__name__}, not an object: give a file {{user: [posts]}}"
        )
    for user, posts in posts_by_user.items():
        yield from ((user, _parse_post(path, user, post)) for post in posts)


def _parse_post(path: Path, user: str, post: Any) -> dict[str, Any]:
    try:
        return {"title": post["t"], "text": post["b"], "tags": list(post["tags"])}
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: a post of {user!r} has no {error}: give posts as {{t, b, tags}}") from error
