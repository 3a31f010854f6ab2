"""Get a published file: mirrors in turn, resumed after interruptions, verified, and never half-written.

Bytes go to `<name>.part`; beside it `<name>.part.json` remembers which version of the file they belong to. Only a
file of the right length and checksum gets its name.
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

FUTILE_ATTEMPTS = 5  # per mirror, in a row
WORTHWHILE_BYTES = 1 << 20  # an attempt that gains this much was not futile
FRESH_STARTS = 2  # per mirror, after a partial file turned out not to fit
FIRST_PAUSE_S = 0.5  # doubled with each futile attempt
TIMEOUT_S = 30.0
CHUNK_BYTES = 1 << 18
PASSING_STATUSES = (408, 425, 429, 500, 502, 503, 504)

Progress = Callable[[int, int | None], None]


class DownloadError(ValueError):
    """No mirror delivered the file."""


class MirrorFailed(Exception):
    """This mirror will not deliver the right file: go to the next."""


class Interrupted(Exception):
    """The transfer broke off: the same mirror may well go on."""


class PartDropped(Interrupted):
    """The partial file did not fit what the mirror has now: start over."""


@dataclass(frozen=True)
class Version:
    """What a partial file is part of: the validator and length the server gave with it."""

    url: str
    validator: str | None
    total_bytes: int | None


@dataclass(frozen=True)
class Wanted:
    """The file to get, and what is known of it."""

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
    """`destination`, fetched from the first of `urls` that delivers a file of the given size and sha256.

    `progress(bytes_done, bytes_total)` is called as bytes arrive; the total is None while unknown. A file that is
    already there and right is left alone; one that is there and wrong is an error, for it may be the user's own.
    """
    wanted = Wanted(Path(destination), sha256, size)
    if wanted.destination.exists():
        return _accept_existing(wanted)
    wanted.destination.parent.mkdir(parents=True, exist_ok=True)
    failures = []
    for url in urls:
        try:
            _from_mirror(url, wanted, progress or (lambda bytes_done, bytes_total: None))
            return wanted.destination
        except MirrorFailed as failure:
            failures.append(f"{url}: {failure}")
    raise DownloadError(
        f"{wanted.destination.name} could not be downloaded ({'; '.join(failures) or 'no mirror is known'}): check the "
        f"connection and run it again, or put the file into {wanted.destination.parent} by hand"
    )


def _accept_existing(wanted: Wanted) -> Path:
    fault = _fault(wanted.destination, wanted)
    if fault:
        raise DownloadError(f"{wanted.destination} is there but {fault}: delete or move it; nothing was changed")
    return wanted.destination


def _from_mirror(url: str, wanted: Wanted, progress: Progress) -> None:
    futile, fresh_starts = 0, 0
    while True:
        bytes_before = _part_bytes(wanted)
        try:
            _transfer(url, wanted, progress)
            _finish(wanted, resumed=bytes_before > 0)
            return
        except Interrupted as interruption:
            fresh_starts += isinstance(interruption, PartDropped)
            futile = 0 if _part_bytes(wanted) - bytes_before >= WORTHWHILE_BYTES else futile + 1
            if futile >= FUTILE_ATTEMPTS or fresh_starts > FRESH_STARTS:
                raise MirrorFailed(f"{interruption}, time and again") from interruption
        time.sleep(FIRST_PAUSE_S * 2**futile / 2)


def _transfer(url: str, wanted: Wanted, progress: Progress) -> None:
    """Append what is missing to the part file; returns when the server has sent all it announced."""
    held, offset = _resumable(url, wanted)
    try:
        response = urllib.request.urlopen(_request(url, held, offset), timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        with error:
            _answer_error_status(error, wanted, offset)
        return
    except (OSError, http.client.HTTPException) as error:
        raise Interrupted(f"no connection ({getattr(error, 'reason', error)})") from error
    with response:
        offset, total_bytes = _placed(response, held, offset, wanted)
        _remember(Version(url, _validator(response), total_bytes), wanted)
        with wanted.part.open("r+b" if offset else "wb") as part:
            part.seek(offset)
            received = _copy(response, part, offset, total_bytes, progress)
    if total_bytes is not None and received < total_bytes:
        raise Interrupted(f"the connection broke after {received:,} of {total_bytes:,} bytes")


def _resumable(url: str, wanted: Wanted) -> tuple[Version | None, int]:
    """(version held, its bytes): what may be continued from this mirror, else (None, 0).

    Bytes of another mirror are continued only if a checksum will tell whether they fit.
    """
    try:
        held = Version(**json.loads(wanted.part_version.read_text()))
    except (OSError, ValueError, TypeError):
        return None, 0
    same_mirror = held.url == url and (held.validator is not None or held.total_bytes is not None)
    if not (same_mirror or wanted.sha256):
        return None, 0
    return held, _part_bytes(wanted)


def _request(url: str, held: Version | None, offset: int) -> urllib.request.Request:
    headers = {"Accept-Encoding": "identity", "User-Agent": "fedtrue"}
    if held is not None and offset:
        headers["Range"] = f"bytes={offset}-"
        if held.url == url and held.validator:
            headers["If-Range"] = held.validator  # a file changed meanwhile is sent whole
    return urllib.request.Request(url, headers=headers)


def _answer_error_status(error: urllib.error.HTTPError, wanted: Wanted, offset: int) -> None:
    """416: nothing is left to send, or the part is longer than the file. Others pass, or fail for good."""
    if error.code == 416 and offset:
        if error.headers.get("Content-Range", "").strip() == f"bytes */{offset}":
            return
        _forget_part(wanted)
        raise PartDropped("the partial file did not fit and was dropped")
    if error.code in PASSING_STATUSES:
        raise Interrupted(f"the server answered {error.code} {error.reason}")
    raise MirrorFailed(f"the server answered {error.code} {error.reason}")


def _placed(response, held: Version | None, offset: int, wanted: Wanted) -> tuple[int, int | None]:
    """(offset of the first byte sent, total length): a server may ignore the range and send everything."""
    announced = response.headers.get("Content-Length")
    if response.status == 206:
        start, total_bytes = _content_range(response.headers.get("Content-Range", ""))
        changed = held is not None and None not in (held.total_bytes, total_bytes) and held.total_bytes != total_bytes
        if start != offset or changed:
            _forget_part(wanted)
            raise PartDropped("the file changed on the server, the partial file was dropped")
    else:
        offset, total_bytes = 0, int(announced) if announced and announced.isdigit() else None
    if None not in (wanted.size, total_bytes) and total_bytes != wanted.size:
        raise MirrorFailed(f"it offers {total_bytes:,} bytes instead of {wanted.size:,}")
    return offset, wanted.size if total_bytes is None else total_bytes


def _content_range(header: str) -> tuple[int | None, int | None]:
    """(first byte, total) of 'bytes 5-9/10'; None for what is not said."""
    span, _, total = header.removeprefix("bytes ").partition("/")
    start = span.partition("-")[0]
    return (int(start) if start.isdigit() else None), (int(total) if total.isdigit() else None)


def _validator(response) -> str | None:
    """A strong ETag, else the date; a weak ETag must not be used to join byte ranges."""
    etag = response.headers.get("ETag")
    return etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified")


def _copy(response, part: IO[bytes], offset: int, total_bytes: int | None, progress: Progress) -> int:
    """Bytes in the part file once the server has sent what it will; a break is seen by the caller's count."""
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


def _finish(wanted: Wanted, resumed: bool) -> None:
    """Verify and rename. A wrong file that was pieced together may be the fault of old bytes: once more, whole."""
    fault = _fault(wanted.part, wanted)
    if fault:
        _forget_part(wanted)
        raise (PartDropped if resumed else MirrorFailed)(f"the file it sent {fault}")
    os.replace(wanted.part, wanted.destination)
    wanted.part_version.unlink(missing_ok=True)


def _fault(path: Path, wanted: Wanted) -> str:
    """What is wrong with the file at `path`, '' if nothing."""
    size = path.stat().st_size
    if wanted.size is not None and size != wanted.size:
        return f"has {size:,} bytes instead of {wanted.size:,}"
    if wanted.sha256 is not None:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != wanted.sha256:
            return f"has sha256 {digest[:12]}… instead of {wanted.sha256[:12]}…"
    return ""


def _part_bytes(wanted: Wanted) -> int:
    return wanted.part.stat().st_size if wanted.part.exists() else 0


def _remember(version: Version, wanted: Wanted) -> None:
    wanted.part_version.write_text(json.dumps(asdict(version)))


def _forget_part(wanted: Wanted) -> None:
    wanted.part.unlink(missing_ok=True)
    wanted.part_version.unlink(missing_ok=True)
