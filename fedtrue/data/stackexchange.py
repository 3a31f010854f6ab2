"""Posts of a Stack Exchange data dump (`Posts.xml`): one client per user.

Each of the 180 sites is a federated data set. The file is read row by row, plain or as .xz, .bz2, .gz, .7z.
"""

import html
import re
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from fedtrue.data.compressed import SEVEN_ZIP_MAGIC, damaged, open_binary, starts_with

KINDS = {
    "1": "question",
    "2": "answer",
    "3": "orphaned tag wiki",
    "4": "tag excerpt",
    "5": "tag wiki",
    "6": "moderator nomination",
    "7": "wiki placeholder",
    "8": "privilege wiki",
}
QUESTIONS_AND_ANSWERS = ("question", "answer")

_CODE_LISTING = re.compile(r"<pre\b.*?</pre>", re.DOTALL | re.IGNORECASE)
_BLOCK_TAG = re.compile(r"</?(?:p|br|hr|li|ul|ol|dl|dd|dt|h\d|blockquote|div|table|tr|td|th)\b[^>]*>", re.IGNORECASE)
_INLINE_TAG = re.compile(r"<[^>]*>")
_TAG_NAME = re.compile(r"[^<>|]+")


@dataclass
class Counts:
    """The number of rows of one file, by what was done with them; complete when `read` has ended."""

    rows: int = 0
    yielded: int = 0
    without_owner: int = 0
    other_kinds: int = 0


def read(
    path: str | Path, counts: Counts | None = None, kinds: Collection[str] = QUESTIONS_AND_ANSWERS
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (user id, post) for every post of the given kinds that has an owner, in the order of the file.

    A post has `kind`, `title`, `text` (see `plain_text`), `tags` (list), `score` (int) and `created` (ISO date).
    Posts of deleted users have no owner: they are skipped, and counted in `counts`.
    """
    counts = Counts() if counts is None else counts
    for row in _rows(Path(path)):
        counts.rows += 1
        kind = KINDS.get(row.get("PostTypeId", ""), "unknown")
        owner = row.get("OwnerUserId")
        if kind not in kinds:
            counts.other_kinds += 1
        elif owner is None:
            counts.without_owner += 1
        else:
            counts.yielded += 1
            yield owner, _post(row, kind)


def plain_text(body: str) -> str:
    """The words of an HTML body: without tags, with entities resolved and white space as single spaces.

    A `<pre>` block is a code listing and is removed; words in inline `<code>` are kept. Regular expressions are enough
    because the site escapes every `<` and `>` that is not part of a tag.

    >>> plain_text("<p>Use <code>vmap</code> &amp; <b>jit</b>.</p><pre>x = 1</pre>")
    'Use vmap & jit.'
    """
    prose = _CODE_LISTING.sub(" ", body)
    prose = _INLINE_TAG.sub("", _BLOCK_TAG.sub(" ", prose))
    return " ".join(html.unescape(prose).split())


def tag_names(tags: str) -> list[str]:
    """The tags in either notation of the dump.

    >>> tag_names("<hops><craft-beer>"), tag_names("|hops|craft-beer|")
    (['hops', 'craft-beer'], ['hops', 'craft-beer'])
    """
    return _TAG_NAME.findall(tags)


def _post(row: dict[str, str], kind: str) -> dict[str, Any]:
    return {
        "kind": kind,
        "title": row.get("Title", ""),
        "text": plain_text(row.get("Body", "")),
        "tags": tag_names(row.get("Tags", "")),
        "score": int(row.get("Score", "0")),
        "created": row.get("CreationDate", ""),
    }


def _rows(path: Path) -> Iterator[dict[str, str]]:
    """The attributes of each `<row/>`; elements are removed once they are read, so memory does not grow."""
    with _open_posts(path) as stream:
        events = ElementTree.iterparse(stream, events=("start", "end"))
        try:
            _, root = next(events)
            if root.tag != "posts":
                raise ValueError(f"{path} contains <{root.tag}>, not <posts>: give the dump's Posts.xml")
            for event, element in events:
                if event == "end" and element.tag == "row":
                    yield dict(element.attrib)
                    root.clear()
        except ElementTree.ParseError as error:
            raise damaged(path, f"not well-formed XML, {error}") from error


@contextmanager
def _open_posts(path: Path) -> Iterator[IO[bytes]]:
    if path.is_file() and starts_with(path, SEVEN_ZIP_MAGIC):
        with _unpacked_seven_zip(path) as posts, open_binary(posts) as stream:
            yield stream
    else:
        with open_binary(path) as stream:
            yield stream


@contextmanager
def _unpacked_seven_zip(path: Path) -> Iterator[Path]:
    """`Posts.xml` of a .7z archive, unpacked into a temporary folder because the format cannot be streamed."""
    try:
        import py7zr
    except ImportError:
        raise ValueError(
            f"{path} is a 7z archive: run 'pip install py7zr', or unpack it and give its Posts.xml"
        ) from None
    with tempfile.TemporaryDirectory(prefix="fedtrue-7z-") as folder:
        try:
            with py7zr.SevenZipFile(path) as archive:
                names = [name for name in archive.getnames() if Path(name).name == "Posts.xml"]
                archive.extract(path=folder, targets=names)
        except (py7zr.exceptions.ArchiveError, EOFError, OSError) as error:
            raise damaged(path, f"7z: {error}") from error
        if not names:
            raise ValueError(f"{path} contains no Posts.xml: give the archive of one site's posts")
        yield Path(folder) / names[0]
