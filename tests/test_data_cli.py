"""`fedtrue data`; downloads come from a server on this machine."""

import functools
import hashlib
import http.server
import json
import threading

import pytest

from fedtrue.cli import main
from fedtrue.data import locations
from fedtrue.data.locations import DataSet, PublishedFile

POSTS = """<?xml version="1.0" encoding="utf-8"?>
<posts>
  <row Id="1" PostTypeId="1" OwnerUserId="7" Title="Which beer?" Body="&lt;p&gt;I like dark beer a lot.&lt;/p&gt;" Tags="&lt;ale&gt;" Score="1" />
  <row Id="2" PostTypeId="2" OwnerUserId="8" Body="&lt;p&gt;Try a stout.&lt;/p&gt;" Score="2" />
  <row Id="3" PostTypeId="2" Body="&lt;p&gt;Nobody wrote this.&lt;/p&gt;" Score="0" />
</posts>
"""  # noqa: E501


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDTRUE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("FEDTRUE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(locations, "_user_folder", lambda: tmp_path / "user")


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A data set `small` on a local server; returns a function that sets its checksum."""
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "small.bin").write_bytes(b"0123456789" * 1000)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path / "www")
    handler.log_message = lambda *arguments: None
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/small.bin"

    def publish(sha256):
        entry = DataSet((PublishedFile("small.bin", (url,), sha256, 10_000),), "free", "ten thousand bytes")
        monkeypatch.setitem(locations.PUBLISHED, "small", entry)

    yield publish
    server.shutdown()


def test_get_downloads_and_checks_and_keeps_existing_files(published, tmp_path, capsys):
    published(hashlib.sha256(b"0123456789" * 1000).hexdigest())
    assert main(["data", "get", "small", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["files"] == [str(tmp_path / "data" / "small" / "small.bin")]
    assert (tmp_path / "data" / "small" / "small.bin").stat().st_size == 10_000
    assert main(["data", "get", "small"]) == 0  # it exists: nothing to do


def test_get_refuses_wrong_bytes_and_leaves_nothing(published, tmp_path, capsys):
    published("0" * 64)
    assert main(["data", "get", "small"]) == 2
    assert "sha256" in capsys.readouterr().err
    assert not (tmp_path / "data" / "small" / "small.bin").exists()


def test_list_names_every_task_and_what_is_missing(capsys):
    assert main(["data", "list", "--json"]) == 0
    rows = {(row["task"], row["data"]): row for row in json.loads(capsys.readouterr().out)}
    assert rows["shakespeare", "plays"]["here"] is None
    assert rows["cifar100", "cifar100"]["from"] == "fedtrue data get cifar100"
    assert rows["synthetic_words", "none needed"]["here"] == "always"


def test_a_missing_file_is_named_with_the_folders_searched_and_the_command_to_get_it(tmp_path, capsys):
    assert main(["data", "show", "shakespeare"]) == 2
    error = capsys.readouterr().err
    assert str(tmp_path / "data" / "plays") in error
    assert "run 'fedtrue data get plays' (5.42 MB)" in error
    assert error.count("\n") == 1


def test_import_copies_a_dump_and_counts_posts_without_owner(tmp_path, capsys):
    (tmp_path / "beer.stackexchange.com").mkdir()
    dump = tmp_path / "beer.stackexchange.com" / "Posts.xml"
    dump.write_text(POSTS)
    assert main(["data", "import", "stackexchange", str(dump), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["site"], answer["users"], answer["without_owner"]) == ("beer", 2, 1)
    assert (tmp_path / "data" / "stackexchange" / "beer.Posts.xml").read_text() == POSTS
    dump.write_text(POSTS.replace("stout", "porter"))
    assert main(["data", "import", "stackexchange", str(dump)]) == 2  # an existing file is never overwritten
    assert "already exists" in capsys.readouterr().err


@pytest.mark.parametrize("text, message", [("<posts></posts>", "no post with an owner"), ("not xml", "dump.xml")])
def test_import_refuses_what_is_not_a_dump(text, message, tmp_path, capsys):
    (tmp_path / "dump.xml").write_text(text)
    assert main(["data", "import", "stackexchange", str(tmp_path / "dump.xml")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_show_prints_statistics_and_readable_text(capsys):
    small = ["clients=20", "vocabulary=50", "hidden=4", "embedding=4", "projection=4"]
    settings = [flag for option in small for flag in ("--set", f"task_options.{option}")]
    assert main(["data", "show", "synthetic_words", *settings, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["train"]["clients"] == 20
    assert answer["test"]["examples"] > 0
    assert answer["sample"][0].startswith("<bos> w")
