"""Parse serialized `tf.train.Example` messages without TensorFlow or a protobuf library.

The messages with their field numbers (every field is length-delimited):

    Example  { features: 1 }
    Features { feature: 1, a map, so repeated entries { key: 1, value: 2 } }
    Feature  { one of bytes_list: 1, float_list: 2, int64_list: 3 }, each of them a list { value: 1, repeated }
"""

from collections.abc import Callable, Container, Iterator

import numpy as np

Values = list[bytes] | np.ndarray

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5  # wire types: the low three bits of a tag
FIRST_FIELD = 1 << 3 | DELIMITED  # the tag of a message or string in field 1
SECOND_FIELD = 2 << 3 | DELIMITED
MAX_VARINT_BYTES = 10  # 64 bits at 7 bits per byte


def parse(buffer: bytes, wanted: Container[bytes] | None = None) -> dict[str, Values]:
    """The features of one message by name; if `wanted` is given, all others are skipped without parsing.

    Strings are returned as a list of bytes, numbers as a 1-d array of int64 or float32.
    """
    found: dict[str, Values] = {}
    try:
        for start, stop in _first_fields(buffer, 0, len(buffer)):
            _read_features(buffer, start, stop, wanted, found)
    except IndexError:
        raise ValueError("the message ends in the middle of a field") from None
    return found


def _read_features(
    buffer: bytes, position: int, end: int, wanted: Container[bytes] | None, found: dict[str, Values]
) -> None:
    """Store the wanted entries of the map in `found`. The hot loop: skipping an entry makes no function call."""
    while position < end:
        if buffer[position] != FIRST_FIELD:
            position = _skip(buffer, position, end)
            continue
        length, start = buffer[position + 1], position + 2
        if length > 127:
            length, start = _varint(buffer, position + 1)
        position = start + length
        if position > end:
            raise ValueError(f"a feature claims {length} bytes but only {end - start} are left")
        if wanted is not None and length > 1 and buffer[start] == FIRST_FIELD:  # encoders write the key first
            key_length = buffer[start + 1]
            if key_length < 128 and buffer[start + 2 : start + 2 + key_length] not in wanted:
                continue
        name, value_start, value_stop = _map_entry(buffer, start, position)
        if wanted is None or name in wanted:
            found[name.decode()] = _feature(buffer, value_start, value_stop)


def _first_fields(buffer: bytes, position: int, end: int) -> Iterator[tuple[int, int]]:
    """(start, stop) of every length-delimited field 1 between `position` and `end`; other fields are skipped."""
    while position < end:
        if buffer[position] != FIRST_FIELD:
            position = _skip(buffer, position, end)
            continue
        length = buffer[position + 1]  # nearly always one byte: saves a function call
        position += 2
        if length > 127:
            length, position = _varint(buffer, position - 1)
        stop = position + length
        if stop > end:
            raise ValueError(f"a field claims {length} bytes but only {end - position} are left")
        yield position, stop
        position = stop


def _map_entry(buffer: bytes, position: int, end: int) -> tuple[bytes, int, int]:
    """(key, start of value, stop of value) of one entry of the map."""
    key, value = (position, position), (position, position)  # a missing field is empty
    while position < end:
        tag, length = buffer[position], buffer[position + 1]
        if tag != FIRST_FIELD and tag != SECOND_FIELD:
            position = _skip(buffer, position, end)
            continue
        position += 2
        if length > 127:
            length, position = _varint(buffer, position - 1)
        if tag == FIRST_FIELD:
            key = position, position + length
        else:
            value = position, position + length
        position += length
    if position > end:
        raise ValueError("a feature's key or value extends past the end of its map entry")
    return buffer[key[0] : key[1]], *value


def _feature(buffer: bytes, position: int, end: int) -> Values:
    values: Values = []  # a feature without a list is empty
    while position < end:
        tag = buffer[position]
        if tag >> 3 not in DECODERS or tag & 7 != DELIMITED:
            position = _skip(buffer, position, end)
            continue
        length, position = _varint(buffer, position + 1)
        if position + length > end:
            raise ValueError(f"a list of values claims {length} bytes but only {end - position} are left")
        values = DECODERS[tag >> 3](buffer, position, position + length)
        position += length
    return values


def _bytes_list(buffer: bytes, position: int, end: int) -> list[bytes]:
    if position < end and buffer[position] == FIRST_FIELD:
        length, start = _varint(buffer, position + 1)
        if start + length == end:  # one string, the usual case
            return [buffer[start:end]]
    return [buffer[start:stop] for start, stop in _first_fields(buffer, position, end)]


def _float_list(buffer: bytes, position: int, end: int) -> np.ndarray:
    pieces = []
    while position < end:
        start, stop, wire_type = _number_field(buffer, position, end)
        if wire_type not in (DELIMITED, FIXED32) or (stop - start) % 4:
            raise ValueError("a float list contains something other than 4-byte floats")
        pieces.append(buffer[start:stop])
        position = stop
    return np.frombuffer(b"".join(pieces), "<f4")


def _int64_list(buffer: bytes, position: int, end: int) -> np.ndarray:
    pieces = []
    while position < end:
        start, stop, wire_type = _number_field(buffer, position, end)
        if wire_type not in (DELIMITED, VARINT):
            raise ValueError("an int64 list contains something other than varints")
        pieces.append(buffer[start:stop])
        position = stop
    return _varints(b"".join(pieces))


DECODERS: dict[int, Callable[[bytes, int, int], Values]] = {1: _bytes_list, 2: _float_list, 3: _int64_list}


def _number_field(buffer: bytes, position: int, end: int) -> tuple[int, int, int]:
    """(start, stop, wire type) of one number or of a packed run; a list may mix both encodings."""
    field, wire_type = buffer[position] >> 3, buffer[position] & 7
    if field != 1:
        raise ValueError(f"a list of numbers has field {field}, but only field 1 exists")
    stop = _skip(buffer, position, end)
    start = _varint(buffer, position + 1)[1] if wire_type == DELIMITED else position + 1
    return start, stop, wire_type


def _varints(packed: bytes) -> np.ndarray:
    """All varints of a packed run, as int64 (two's complement of the 64 bits)."""
    groups = np.frombuffer(packed, np.uint8)
    is_last = groups < 128
    if is_last.all():
        return groups.astype(np.int64)
    if not is_last[-1]:
        raise ValueError("a list of integers ends in the middle of one")
    lasts = np.flatnonzero(is_last)
    firsts = np.concatenate([[0], lasts[:-1] + 1])
    lengths = lasts - firsts + 1
    if lengths.max() > MAX_VARINT_BYTES:
        raise ValueError("an integer is longer than 64 bits")
    shifts = (7 * (np.arange(len(groups)) - np.repeat(firsts, lengths))).astype(np.uint64)
    return np.bitwise_or.reduceat((groups & 127).astype(np.uint64) << shifts, firsts).view(np.int64)


def _varint(buffer: bytes, position: int) -> tuple[int, int]:
    """(value, position after it)."""
    value, group = buffer[position] & 127, buffer[position]
    shift = 0
    while group > 127:
        position += 1
        shift += 7
        if shift >= 7 * MAX_VARINT_BYTES:
            raise ValueError("an integer is longer than 64 bits")
        group = buffer[position]
        value |= (group & 127) << shift
    return value, position + 1


def _skip(buffer: bytes, position: int, end: int) -> int:
    """The position after the field that starts at `position`."""
    tag, position = _varint(buffer, position)
    wire_type = tag & 7
    if wire_type == VARINT:
        position = _varint(buffer, position)[1]
    elif wire_type == DELIMITED:
        length, position = _varint(buffer, position)
        position += length
    elif wire_type in (FIXED32, FIXED64):
        position += 4 if wire_type == FIXED32 else 8
    else:
        raise ValueError(f"a field has the wire type {wire_type}, which does not exist")
    if position > end or tag >> 3 == 0:
        raise ValueError("a field extends past the end of its message")
    return position
