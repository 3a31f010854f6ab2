"""Download a published file: mirrors are tried in turn, interrupted downloads resume, and the result is verified.

Bytes are written to `<name>.part`; `<name>.part.json` records which version of the file they belong to. The file gets
its final name only when its length and checksum are right.
"""

import hashlib
import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

MAX_STALLED_ATTEMPTS = 5  # per mirror, in a row
MIN_PROGRESS_BYTES = 1 << 20  # an attempt that receives fewer bytes counts as stalled
MAX_RESTARTS = 2  # per mirror, after a partial file did not match
FIRST_RETRY_DELAY_S = 0.5  # doubled with each stalled attempt
TIMEOUT_S = 30.0
CHUNK_BYTES = 1 << 18
TRANSIENT_STATUSES = (408, 425, 429, 500, 502, 503, 504)

Progress = Callable[[int, int | None], None]


class DownloadError(ValueError):
    """No mirror delivered the file."""


class MirrorFailed(Exception):
    """This mirror does not have the right file: try the next one."""


class Interrupted(Exception):
    """The transfer was interrupted: the same mirror can be tried again."""


class PartialFileDeleted(Interrupted):
    """The partial file did not match the file on the mirror and was deleted: download from the start."""


@dataclass(frozen=True)
class PartialFile:
    """Which file a partial file belongs to: its address, and the validator and length that the server sent."""

    url: str
    validator: str | None
    total_bytes: int | None


@dataclass(frozen=True)
class Target:
    """The file to download, with its checksum and size where they are known."""

    destination: Path
    sha256: str | None
    size: int | None

    @property
    def part(self) -> Path:
        return self.destination.with_name(self.destination.name + ".part")

    @property
    def part_version(self) -> Path:
        return self.destination.with_name(self.destination.name + ".part.json")


def download(
    urls: Sequence[str],
    destination: str | Path,
    sha256: str | None = None,
    size: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Download a file from the first mirror that has it with the given size and checksum.

    Args:
        urls: the mirrors, in order of preference.
        destination: the file to write. If it exists and is right, nothing is done; if it is wrong, an error is raised
            and it is kept, because it may be the user's own.
        sha256: the expected checksum, if known.
        size: the expected number of bytes, if known.
        progress: called as `progress(bytes_done, bytes_total)`; the total is None while unknown.

    Returns:
        `destination`.
    """
    target = Target(Path(destination), sha256, size)
    if target.destination.exists():
        return _accept_existing(target)
    target.destination.parent.mkdir(parents=True, exist_ok=True)
    failures = []
    for url in urls:
        try:
            _download_from(url, target, progress or (lambda bytes_done, bytes_total: None))
            return target.destination
        except MirrorFailed as failure:
            failures.append(f"{url}: {failure}")
    raise DownloadError(
        f"{target.destination.name} could not be downloaded ({'; '.join(failures) or 'no mirror is known'}): check the "
        f"connection and run it again, or copy the file into {target.destination.parent} yourself"
    )


def _accept_existing(target: Target) -> Path:
    mismatch = _mismatch(target.destination, target)
    if mismatch:
        raise DownloadError(f"{target.destination} exists but {mismatch}: delete or move it; nothing was changed")
    return target.destination


def _download_from(url: str, target: Target, progress: Progress) -> None:
    stalled, restarts = 0, 0
    while True:
        bytes_before = _part_bytes(target)
        try:
            _transfer(url, target, progress)
            _verify_and_rename(target, resumed=bytes_before > 0)
            return
        except Interrupted as interruption:
            restarts += isinstance(interruption, PartialFileDeleted)
            stalled = 0 if _part_bytes(target) - bytes_before >= MIN_PROGRESS_BYTES else stalled + 1
            if stalled >= MAX_STALLED_ATTEMPTS or restarts > MAX_RESTARTS:
                raise MirrorFailed(f"{interruption}, repeatedly") from interruption
        time.sleep(FIRST_RETRY_DELAY_S * 2**stalled / 2)


def _transfer(url: str, target: Target, progress: Progress) -> None:
    """Append the missing bytes to the partial file; returns when the server has sent all it announced."""
    partial, offset = _resumable_part(url, target)
    try:
        response = urllib.request.urlopen(_request(url, partial, offset), timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        with error:
            _handle_error_status(error, target, offset)
        return
    except (OSError, http.client.HTTPException) as error:
        raise Interrupted(f"no connection ({getattr(error, 'reason', error)})") from error
    with response:
        offset, total_bytes = _offset_and_total(response, partial, offset, target)
        _write_part_version(PartialFile(url, _validator(response), total_bytes), target)
        with target.part.open("r+b" if offset else "wb") as part:
            part.seek(offset)
            received = _copy(response, part, offset, total_bytes, progress)
    if total_bytes is not None and received < total_bytes:
        raise Interrupted(f"the connection broke after {received:,} of {total_bytes:,} bytes")


def _resumable_part(url: str, target: Target) -> tuple[PartialFile | None, int]:
    """(version of the partial file, its bytes) if this mirror can resume it, else (None, 0).

    Bytes from another mirror are resumed only if a checksum will verify the result.
    """
    try:
        partial = PartialFile(**json.loads(target.part_version.read_text()))
    except (OSError, ValueError, TypeError):
        return None, 0
    same_mirror = partial.url == url and (partial.validator is not None or partial.total_bytes is not None)
    if not (same_mirror or target.sha256):
        return None, 0
    return partial, _part_bytes(target)


def _request(url: str, partial: PartialFile | None, offset: int) -> urllib.request.Request:
    headers = {"Accept-Encoding": "identity", "User-Agent": "fedtrue"}
    if partial is not None and offset:
        headers["Range"] = f"bytes={offset}-"
        if partial.url == url and partial.validator:
            headers["If-Range"] = partial.validator  # if the file has changed, the server sends all of it
    return urllib.request.Request(url, headers=headers)


def _handle_error_status(error: urllib.error.HTTPError, target: Target, offset: int) -> None:
    """Status 416: no bytes are left to send, or the partial file is too long. Others are transient or permanent."""
    if error.code == 416 and offset:
        if error.headers.get("Content-Range", "").strip() == f"bytes */{offset}":
            return
        _delete_part(target)
        raise PartialFileDeleted("the partial file did not match and was deleted")
    if error.code in TRANSIENT_STATUSES:
        raise Interrupted(f"the server answered {error.code} {error.reason}")
    raise MirrorFailed(f"the server answered {error.code} {error.reason}")


def _offset_and_total(response, partial: PartialFile | None, offset: int, target: Target) -> tuple[int, int | None]:
    """(offset of the first byte sent, total length); a server may ignore the range and send the whole file."""
    announced = response.headers.get("Content-Length")
    if response.status == 206:
        start, total_bytes = _content_range(response.headers.get("Content-Range", ""))
        expected_total = partial.total_bytes if partial else None
        changed = None not in (expected_total, total_bytes) and expected_total != total_bytes
        if start != offset or changed:
            _delete_part(target)
            raise PartialFileDeleted("the file changed on the server, the partial file was deleted")
    else:
        offset, total_bytes = 0, int(announced) if announced and announced.isdigit() else None
    if None not in (target.size, total_bytes) and total_bytes != target.size:
        raise MirrorFailed(f"it offers {total_bytes:,} bytes instead of {target.size:,}")
    return offset, target.size if total_bytes is None else total_bytes


def _content_range(header: str) -> tuple[int | None, int | None]:
    """(first byte, total) of 'bytes 5-9/10'; None for what is missing."""
    span, _, total = header.removeprefix("bytes ").partition("/")
    start = span.partition("-")[0]
    return (int(start) if start.isdigit() else None), (int(total) if total.isdigit() else None)


def _validator(response) -> str | None:
    """A strong ETag, else the modification date; a weak ETag must not be used to join byte ranges."""
    etag = response.headers.get("ETag")
    return etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified")


def _copy(response, part: IO[bytes], offset: int, total_bytes: int | None, progress: Progress) -> int:
    """Copy the response to the partial file and return its length; the caller compares it with the total."""
    part.truncate()
    progress(offset, total_bytes)
    while True:
        try:
            chunk = response.read(CHUNK_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise Interrupted(f"the connection broke after {offset:,} bytes ({error})") from error
        if not chunk:
            break
        part.write(chunk)
        offset += len(chunk)
        progress(offset, total_bytes)
    part.flush()
    os.fsync(part.fileno())
    return offset


def _verify_and_rename(target: Target, resumed: bool) -> None:
    """Verify the file and give it its name. If a resumed file is wrong, old bytes may be the cause: start again."""
    mismatch = _mismatch(target.part, target)
    if mismatch:
        _delete_part(target)
        raise (PartialFileDeleted if resumed else MirrorFailed)(f"the file it sent {mismatch}")
    os.replace(target.part, target.destination)
    target.part_version.unlink(missing_ok=True)


def _mismatch(path: Path, target: Target) -> str:
    """What is wrong with the file at `path`; '' if nothing."""
    size = path.stat().st_size
    if target.size is not None and size != target.size:
        return f"has {size:,} bytes instead of {target.size:,}"
    if target.sha256 is not None:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != target.sha256:
            return f"has sha256 {digest[:12]}… instead of {target.sha256[:12]}…"
    return ""


def _part_bytes(target: Target) -> int:
    return target.part.stat().st_size if target.part.exists() else 0


def _write_part_version(version: PartialFile, target: Target) -> None:
    target.part_version.write_text(json.dumps(asdict(version)))


def _delete_part(target: Target) -> None:
    target.part.unlink(missing_ok=True)
    target.part_version.unlink(missing_ok=True)
