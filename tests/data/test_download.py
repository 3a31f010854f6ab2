"""Laws of the download: served by a local server that misbehaves in the ways real ones do."""

import hashlib
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fedtrue.data import download as module
from fedtrue.data.download import DownloadError, download

CONTENT = bytes(range(256)) * 400  # 102,400 bytes
SHA256 = hashlib.sha256(CONTENT).hexdigest()
HALF = len(CONTENT) // 2


@dataclass
class Behaviour:
    """How the server responds to one path."""

    content: bytes = CONTENT
    etag: str | None = '"v1"'
    honours_range: bool = True
    bytes_before_drop: list[int] = field(default_factory=list)  # one entry per request; later requests are not dropped
    announced_bytes: int | None = None
    statuses: list[int] = field(default_factory=list)  # answered first, one per request
    ranges_seen: list[str | None] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    behaviours: dict[str, Behaviour]

    def log_message(self, *_):
        pass

    def do_GET(self):
        behaviour = self.behaviours.get(self.path)
        if behaviour is None:
            return self.send_error(404)
        behaviour.ranges_seen.append(self.headers.get("Range"))
        if behaviour.statuses:
            return self.send_error(behaviour.statuses.pop(0))
        self.answer(behaviour, self.start_of_range(behaviour))

    def start_of_range(self, behaviour: Behaviour) -> int:
        unchanged = self.headers.get("If-Range") in (None, behaviour.etag)
        wanted = self.headers.get("Range")
        return int(wanted[len("bytes=") : -1]) if wanted and behaviour.honours_range and unchanged else 0

    def answer(self, behaviour: Behaviour, start: int) -> None:
        total = len(behaviour.content)
        if start and start >= total:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{total}")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        body = behaviour.content[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
        if behaviour.etag:
            self.send_header("ETag", behaviour.etag)
        self.send_header("Content-Length", str(behaviour.announced_bytes or len(body)))
        self.end_headers()
        limit = behaviour.bytes_before_drop.pop(0) if behaviour.bytes_before_drop else len(body)
        self.wfile.write(body[:limit])


@dataclass
class Server:
    address: str
    behaviours: dict[str, Behaviour]

    def serve(self, path: str = "/file", **settings) -> tuple[str, Behaviour]:
        self.behaviours[path] = Behaviour(**settings)
        return self.address + path, self.behaviours[path]


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(module, "FIRST_RETRY_DELAY_S", 0.001)
    monkeypatch.setattr(module, "TIMEOUT_S", 5.0)
    monkeypatch.setattr(module, "MIN_PROGRESS_BYTES", 1000)
    behaviours: dict[str, Behaviour] = {}
    handler = type("BoundHandler", (Handler,), {"behaviours": behaviours})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield Server(f"http://127.0.0.1:{http.server_port}", behaviours)
        http.shutdown()
        thread.join()


def interrupted_download(url: str, destination, at_bytes: int, **known) -> None:
    """A download stopped by its user, as Ctrl-C does."""

    def stop(bytes_done: int, bytes_total: int | None) -> None:
        if bytes_done >= at_bytes:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download([url], destination, progress=stop, **known)


@pytest.fixture
def target(tmp_path):
    return tmp_path / "deep" / "file.bin"


def left_behind(target) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir())


def test_a_complete_download_leaves_no_other_file(server, target):
    url, _ = server.serve()
    calls: list[tuple[int, int | None]] = []
    assert download([url], target, SHA256, len(CONTENT), lambda *call: calls.append(call)) == target
    assert target.read_bytes() == CONTENT
    assert left_behind(target) == ["file.bin"]
    assert calls[0] == (0, len(CONTENT)) and calls[-1] == (len(CONTENT), len(CONTENT))
    assert calls == sorted(calls)


def test_a_file_that_exists_is_not_requested_again(server, target):
    url, behaviour = server.serve()
    download([url], target, SHA256)
    download([url], target, SHA256)
    assert len(behaviour.ranges_seen) == 1


def test_a_wrong_file_that_exists_is_kept_and_named(server, target):
    url, _ = server.serve()
    target.parent.mkdir()
    target.write_bytes(b"the user's own")
    with pytest.raises(DownloadError, match=r"file.bin exists but has sha256 .*: delete or move it; nothing was"):
        download([url], target, SHA256)
    assert target.read_bytes() == b"the user's own"


def test_dropped_connections_are_resumed_where_they_broke(server, target):
    url, behaviour = server.serve(bytes_before_drop=[30_000, 20_000])
    download([url], target, SHA256, len(CONTENT))
    assert target.read_bytes() == CONTENT
    assert behaviour.ranges_seen == [None, "bytes=30000-", "bytes=50000-"]


def test_a_download_stopped_by_the_user_resumes_in_the_next_run(server, target, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_BYTES", 10_000)
    url, behaviour = server.serve()
    interrupted_download(url, target, at_bytes=HALF)
    assert left_behind(target) == ["file.bin.part", "file.bin.part.json"]
    download([url], target)
    assert target.read_bytes() == CONTENT
    assert behaviour.ranges_seen[1] is not None
    assert left_behind(target) == ["file.bin"]


def test_a_server_that_ignores_ranges_sends_the_whole_file_again(server, target):
    url, _ = server.serve(honours_range=False, bytes_before_drop=[HALF])
    download([url], target, SHA256)
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("etag", ['"v2"', None], ids=["detected by its ETag", "detected by its length"])
def test_a_file_changed_between_runs_is_never_a_mixture(server, target, monkeypatch, etag):
    monkeypatch.setattr(module, "CHUNK_BYTES", 10_000)
    url, behaviour = server.serve(etag='"v1"' if etag else None)
    interrupted_download(url, target, at_bytes=HALF)
    behaviour.content, behaviour.etag = b"new" * 40_000, etag
    download([url], target)
    assert target.read_bytes() == b"new" * 40_000


def test_a_partial_file_that_is_already_complete_is_only_verified(server, target):
    url, behaviour = server.serve()
    interrupted_download(url, target, at_bytes=len(CONTENT), sha256=SHA256)
    assert target.with_name("file.bin.part").stat().st_size == len(CONTENT)
    download([url], target, SHA256)
    assert target.read_bytes() == CONTENT
    assert behaviour.ranges_seen[-1] == f"bytes={len(CONTENT)}-"  # the server answers 416


def test_a_partial_file_longer_than_the_file_is_deleted(server, target):
    url, behaviour = server.serve(content=CONTENT * 2, etag=None)
    interrupted_download(url, target, at_bytes=2 * len(CONTENT), sha256=SHA256)
    behaviour.content = CONTENT
    download([url], target, SHA256)
    assert target.read_bytes() == CONTENT


def test_another_mirror_resumes_the_download_if_a_checksum_is_known(server, target):
    first, _ = server.serve("/a", bytes_before_drop=[HALF] + [0] * 20)
    second, behaviour = server.serve("/b", etag='"other"')
    download([first, second], target, SHA256)
    assert target.read_bytes() == CONTENT
    assert behaviour.ranges_seen == [f"bytes={HALF}-"]


def test_without_a_checksum_another_mirror_starts_again(server, target):
    first, _ = server.serve("/a", content=b"x" * len(CONTENT), bytes_before_drop=[HALF] + [0] * 20)
    second, behaviour = server.serve("/b")
    download([first, second], target)
    assert target.read_bytes() == CONTENT
    assert behaviour.ranges_seen == [None]


def test_wrong_bytes_from_one_mirror_do_not_rule_out_the_next(server, target):
    wrong, _ = server.serve("/a", content=b"x" * len(CONTENT), bytes_before_drop=[HALF] + [0] * 20)
    right, _ = server.serve("/b")
    download([wrong, right], target, SHA256)
    assert target.read_bytes() == CONTENT


def test_wrong_bytes_are_removed_and_the_next_mirror_is_tried(server, target):
    wrong, _ = server.serve("/wrong", content=b"x" * len(CONTENT))
    right, _ = server.serve("/right")
    download([wrong, right], target, SHA256, len(CONTENT))
    assert target.read_bytes() == CONTENT


def fails_with(server, target, url: str, message: str, **known) -> None:
    with pytest.raises(DownloadError, match=message) as failure:
        download([url], target, **known)
    assert "\n" not in str(failure.value) and not target.exists()


def test_wrong_bytes_from_every_mirror_leave_no_file(server, target):
    url, _ = server.serve(content=b"x" * len(CONTENT))
    fails_with(server, target, url, r"has sha256 .{12}… instead of", sha256=SHA256)
    assert left_behind(target) == []


def test_a_server_that_offers_another_length_is_refused_before_its_bytes_arrive(server, target):
    url, _ = server.serve(announced_bytes=5_000)
    fails_with(server, target, url, r"it offers 5,000 bytes instead of 102,400", size=len(CONTENT))


def test_a_server_that_announces_more_than_it_sends_fails_after_some_attempts(server, target):
    url, behaviour = server.serve(announced_bytes=200_000, honours_range=False)
    fails_with(server, target, url, r"the connection broke after 102,400 of 200,000 bytes, repeatedly")
    assert len(behaviour.ranges_seen) <= module.MAX_STALLED_ATTEMPTS + 1


def test_a_server_that_always_disconnects_and_is_wrong_fails(server, target):
    url, behaviour = server.serve(content=b"x" * len(CONTENT), bytes_before_drop=[HALF, HALF] * 50)
    fails_with(server, target, url, r"has sha256 .* repeatedly", sha256=SHA256)
    assert len(behaviour.ranges_seen) < 10


def test_a_missing_file_is_not_requested_twice_and_every_mirror_is_named(server, target):
    gone, behaviour = server.serve("/forbidden", statuses=[403] * 9)
    with pytest.raises(DownloadError) as failure:
        download([server.address + "/absent", gone], target)
    assert "/absent: the server answered 404" in str(failure.value)
    assert "/forbidden: the server answered 403" in str(failure.value)
    assert f"copy the file into {target.parent} yourself" in str(failure.value)
    assert len(behaviour.ranges_seen) == 1


def test_a_transient_error_is_retried(server, target):
    url, _ = server.serve(statuses=[503, 429, 500])
    download([url], target, SHA256)
    assert target.read_bytes() == CONTENT


def test_an_unreachable_server_is_named(server, target):
    fails_with(server, target, "http://127.0.0.1:9/file", r"127.0.0.1:9/file: no connection .* repeatedly")


def test_a_file_without_mirrors_fails_with_that_message(target):
    with pytest.raises(DownloadError, match="no mirror is known"):
        download([], target)


@pytest.mark.parametrize("junk", [b"", b"[1]", b"{}", b"\xff"])
def test_a_damaged_version_file_beside_the_partial_file_means_starting_again(server, target, junk: bytes):
    url, behaviour = server.serve()
    target.parent.mkdir()
    target.with_name("file.bin.part").write_bytes(b"old" * 100)
    target.with_name("file.bin.part.json").write_bytes(junk)
    download([url], target)
    assert target.read_bytes() == CONTENT and behaviour.ranges_seen == [None]
