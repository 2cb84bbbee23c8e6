"""Changes that get past the checksums: random bytes would be refused at the door and see nothing of the codecs."""

import json
import random
import struct
from collections.abc import Callable

from checks import SECTION_ENTRY_BYTES, SECTION_TABLE_AT, reseal

# bytes, largest length: libFuzzer's own mutation
MutateBytes = Callable[[bytes, int], bytes]
Mutate = Callable[[bytes, int, random.Random, MutateBytes], bytes]
# offset and struct form of the header's numbers
_FIELDS = ((8, "H"), (10, "H"), (12, "I"), (32, "B"), (33, "B"), (34, "H"), *((at, "I") for at in range(36, 56, 4)))
_POSITION = (56, "Q")
_EDGES = (0, 1, 2, 9, 10, 11, 255, 256, 4096, 2**16, 2**20, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)


def mutate_container(data: bytes, limit: int, rng: random.Random, mutate_bytes: MutateBytes) -> bytes:
    """Change one section, the section table, one header field or any byte; checksums right, but for a few."""
    draw = rng.random()
    parts = _split(data)
    if parts is None or draw < 0.05:
        return mutate_bytes(data, limit)
    header, sections = parts
    if draw < 0.65 and sections:
        at = rng.randrange(len(sections))
        section_id, body = sections[at]
        sections[at] = (section_id, mutate_bytes(body, max(limit - len(data) + len(body), 1)))
        return _join(header, sections)
    if draw < 0.75 and sections:
        return _join(header, _shuffled(sections, rng))
    if draw < 0.80 and sections:
        return reseal(_with_lying_table(bytearray(data), len(sections), rng))
    if draw < 0.95:
        at, form = rng.choice((*_FIELDS, _POSITION))
        value = rng.choice(_EDGES) if rng.random() < 0.5 else rng.randrange(64)
        edited = bytearray(data)
        struct.pack_into("<" + form, edited, at, value % (1 << 8 * struct.calcsize(form)))
        return reseal(edited)
    return reseal(mutate_bytes(data, limit))


def mutate_profile(data: bytes, limit: int, rng: random.Random, mutate_bytes: MutateBytes) -> bytes:
    """Change a profile's tensors, their directory, its JSON, or any byte."""
    draw = rng.random()
    size = int.from_bytes(data[:8], "little")
    try:
        directory = json.loads(data[8 : 8 + size])
        text = directory["__metadata__"]["cachegen_profile"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return mutate_bytes(data, limit)
    tensors = data[8 + size :]
    if draw < 0.45:
        try:
            return _with_changed_tensor(data, 8 + size, directory, rng)
        except (LookupError, TypeError, ValueError, OverflowError, struct.error):
            # an earlier mutation was in the directory
            return mutate_bytes(data, limit)
    if draw < 0.60:
        # as long as it was, so that the directory still fits
        return data[: 8 + size] + mutate_bytes(tensors, len(tensors)).ljust(len(tensors), b"\0")
    if draw < 0.80:
        changed = mutate_bytes(text.encode(), len(text) + 64).decode("utf-8", "replace")
        directory["__metadata__"]["cachegen_profile"] = changed
    elif draw < 0.95:
        name = rng.choice([name for name in directory if name != "__metadata__"])
        entry = directory[name]
        entry["shape"] = rng.choice([entry["shape"][::-1], [*entry["shape"], 1], [1, *entry["shape"]], [0]])
        entry["dtype"] = rng.choice([entry["dtype"], "I64", "F64", "BF16", "F8_E4M3", "BOOL", "C64", "F4"])
    else:
        return mutate_bytes(data, limit)
    packed = json.dumps(directory).encode()
    return len(packed).to_bytes(8, "little") + packed + tensors


def mutate_manifest(data: bytes, limit: int, rng: random.Random, mutate_bytes: MutateBytes) -> bytes:
    """Change any byte, or give one field another value."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or not document or rng.random() < 0.5:
        return mutate_bytes(data, limit)
    chunks = document.get("chunks")
    place = rng.choice(chunks) if isinstance(chunks, list) and chunks and rng.random() < 0.5 else document
    if isinstance(place, dict) and place:
        place[rng.choice(list(place))] = rng.choice([*_EDGES, -1, 1.5, None, True, "", "raw", [], {}, {"raw": 1}])
    return json.dumps(document).encode()


def _split(data: bytes) -> tuple[bytes, list[tuple[int, bytes]]] | None:
    """Fixed part of the header, and the sections as far as the table tells the truth; None where it does not."""
    if len(data) < SECTION_TABLE_AT:
        return None
    (count,) = struct.unpack_from("<H", data, 34)
    if len(data) < SECTION_TABLE_AT + count * SECTION_ENTRY_BYTES + 8:
        return None
    sections = []
    for index in range(count):
        section_id, _, offset, length, _ = struct.unpack_from("<IIQQQ", data, SECTION_TABLE_AT + 32 * index)
        sections.append((section_id, data[offset : offset + length]))
    return data[:SECTION_TABLE_AT], sections


def _join(header: bytes, sections: list[tuple[int, bytes]]) -> bytes:
    fixed = bytearray(header)
    size = SECTION_TABLE_AT + SECTION_ENTRY_BYTES * len(sections) + 8
    struct.pack_into("<I", fixed, 12, size)
    struct.pack_into("<H", fixed, 34, len(sections))
    table, offset = b"", size
    for section_id, body in sections:
        table += struct.pack("<IIQQQ", section_id, 0, offset, len(body), 0)
        offset += len(body)
    return reseal(b"".join((bytes(fixed), table, bytes(8), *(body for _, body in sections))))


def _shuffled(sections: list[tuple[int, bytes]], rng: random.Random) -> list[tuple[int, bytes]]:
    """Sections dropped, doubled, exchanged or renamed."""
    a, b = rng.randrange(len(sections)), rng.randrange(len(sections))
    kind = rng.randrange(4)
    if kind == 0:
        return sections[:a] + sections[a + 1 :]
    if kind == 1:
        return [*sections, (rng.randrange(18), sections[a][1])]
    if kind == 2:
        sections[a], sections[b] = (sections[a][0], sections[b][1]), (sections[b][0], sections[a][1])
        return sections
    sections[a] = (rng.randrange(18), sections[a][1])
    return sections


def _with_lying_table(data: bytearray, count: int, rng: random.Random) -> bytearray:
    """A section that overlaps another, lies in the header, or passes the end."""
    entry = SECTION_TABLE_AT + SECTION_ENTRY_BYTES * rng.randrange(count)
    value = rng.choice([rng.randrange(len(data) + 1), *_EDGES])
    struct.pack_into("<Q", data, entry + rng.choice([8, 16]), value)
    return data


def _with_changed_tensor(data: bytes, tensors_at: int, directory: dict, rng: random.Random) -> bytes:
    """One element of one tensor replaced by an edge of its type."""
    name = rng.choice([name for name in directory if name != "__metadata__"])
    first, end = directory[name]["data_offsets"]
    end = min(end, len(data) - tensors_at)
    forms = {"U8": "B", "U16": "H", "I32": "i", "F32": "f", "F16": "H"}
    form = forms.get(directory[name]["dtype"], "B")
    size = struct.calcsize(form)
    if end - first < size:
        return data
    at = tensors_at + first + rng.randrange((end - first) // size) * size
    edited = bytearray(data)
    if form == "f":
        value = rng.choice([0.0, -0.0, 1.0, -1.0, 1e-45, 1e-38, 2.0**40, -(2.0**41), 3e38, float("inf"), float("nan")])
    else:
        value = rng.choice([0, 1, 2, 127, rng.randrange(1 << 8 * size - 1)])
    struct.pack_into("<" + form, edited, at, value)
    return bytes(edited)
