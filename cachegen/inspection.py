"""Explain a container: what it says of itself, and the outcome of every check, also where it is damaged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TypeVar

from cachegen.codecs import CODECS
from cachegen.container import (
    MAGIC,
    MAX_SECTIONS,
    ChunkIdentity,
    HeaderFields,
    SectionEntry,
    check_end,
    check_header,
    check_section,
    header_fields,
    read_meaning,
    section_entries,
)
from cachegen.encoding import Encoding
from cachegen.errors import CachegenError, FormatError, MemoryLimitError
from cachegen.kv import ChunkLayout
from cachegen.pipeline import decode_chunk
from cachegen.profile import Profile

INSPECTION_SCHEMA = 1
OK, FAILED, SKIPPED = "ok", "failed", "skipped"
T = TypeVar("T")


@dataclass(frozen=True)
class Check:
    """One check: its outcome ``ok``, ``failed`` or ``skipped``, and what is to be said about it."""

    name: str
    outcome: str
    detail: str


@dataclass(frozen=True)
class Section:
    """One entry of the section table; ``bits_per_element`` counts elements of the chunk, None if they are not known."""

    id: int
    name: str
    offset: int
    num_bytes: int
    bits_per_element: float | None


@dataclass
class Inspection:
    """What is known of a container.

    Parameters
    ----------
    num_bytes : int
        Of the whole file.
    encoding, layout, identity
        None where the header does not say anything sound.
    header_is_sound : bool
        Whether the header's checksum holds; else what it says is shown for what it is worth.
    """

    num_bytes: int
    encoding: Encoding | None = None
    layout: ChunkLayout | None = None
    identity: ChunkIdentity | None = None
    header_is_sound: bool = False
    sections: list[Section] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    @property
    def is_damaged(self) -> bool:
        """Whether some check failed."""
        return any(check.outcome == FAILED for check in self.checks)

    @property
    def bits_per_element(self) -> float | None:
        """Of the whole container; None if its elements are not known."""
        return None if self.layout is None else 8 * self.num_bytes / self.layout.num_elements

    def to_json(self) -> dict[str, Any]:
        """As plain values, hashes in hex."""
        encoding, layout, identity = self.encoding, self.layout, self.identity
        bits = self.bits_per_element
        return {
            "schema": INSPECTION_SCHEMA,
            "bytes": self.num_bytes,
            "damaged": self.is_damaged,
            "header_is_sound": self.header_is_sound,
            "codec": encoding and encoding.codec,
            "level": encoding and encoding.level,
            "shape": layout and asdict(layout.shape),
            "dtype": layout and layout.dtype.name,
            "tokens": layout and layout.num_tokens,
            "elements": layout and layout.num_elements,
            "bits_per_element": bits,
            "ratio_fp16": bits and 16 / bits,
            "identity": identity
            and {name: value.hex() if isinstance(value, bytes) else value for name, value in asdict(identity).items()},
            "sections": [asdict(section) for section in self.sections],
            "checks": [asdict(check) for check in self.checks],
        }


FindProfile = Callable[[ChunkIdentity], Profile | None]


def inspect_container(data: bytes, profile_for: FindProfile) -> Inspection:
    """Take every check of a container, going on behind those that fail for as long as anything can be told.

    Parameters
    ----------
    data : bytes
        Of any content.
    profile_for : callable
        Finds the profile of a chunk, or None.
    """
    return _Inspector(data).inspect(profile_for)


class _Inspector:
    """Takes the checks of one container in order."""

    def __init__(self, data: bytes) -> None:
        self._data, self._view = data, memoryview(data)
        self._found = Inspection(len(data))

    def inspect(self, profile_for: FindProfile) -> Inspection:
        self._found.header_is_sound = self._check("header", partial(check_header, self._view)) is not None
        try:
            fields = header_fields(self._view)
        except FormatError:
            return self._found
        if fields.magic != MAGIC:
            return self._found
        meaning = self._check("header fields", partial(read_meaning, fields))
        if meaning is not None:
            self._found.encoding, self._found.layout, self._found.identity = meaning
        if self._found.header_is_sound or meaning is not None:
            self._walk_sections(fields)
        if meaning is not None:
            self._decode(meaning[0], meaning[2], profile_for)
        return self._found

    def _check(self, name: str, work: Callable[[], T]) -> T | None:
        try:
            result = work()
        except MemoryLimitError:
            raise  # says nothing about the container
        except CachegenError as error:
            self._found.checks.append(Check(name, FAILED, str(error)))
            return None
        self._found.checks.append(Check(name, OK, ""))
        return result

    def _walk_sections(self, fields: HeaderFields) -> None:
        encoding = self._found.encoding
        names: Mapping[int, str] = {} if encoding is None else CODECS[encoding.codec].section_names
        expected = fields.header_bytes
        for entry in section_entries(self._view, min(fields.num_sections, MAX_SECTIONS)):
            section = self._describe(entry, names.get(entry.id, "unknown"))
            self._found.sections.append(section)
            self._check(f"section {entry.id}, {section.name}", partial(check_section, self._view, entry, expected))
            expected = entry.offset + entry.length
        self._check("end", partial(check_end, self._view, expected))

    def _describe(self, entry: SectionEntry, name: str) -> Section:
        layout = self._found.layout
        bits = None if layout is None else 8 * entry.length / layout.num_elements
        return Section(entry.id, name, entry.offset, entry.length, bits)

    def _decode(self, encoding: Encoding, identity: ChunkIdentity, profile_for: FindProfile) -> None:
        profile = None
        if not CODECS[encoding.codec].uses_tables:
            profile_check = Check("profile", OK, "not needed")
        elif (profile := profile_for(identity)) is None:
            profile_check = Check("profile", SKIPPED, f"needs {identity.profile_hash.hex()}, which is not at hand")
        elif profile.hash != identity.profile_hash:
            given = profile.hash.hex()
            profile_check = Check("profile", SKIPPED, f"needs {identity.profile_hash.hex()}, the one given is {given}")
        else:
            profile_check = Check("profile", OK, "at hand")
        obstacle = "the container is damaged" if self._found.is_damaged else ""
        if profile_check.outcome == SKIPPED:
            obstacle = obstacle or "its profile is not at hand"
        self._found.checks.append(profile_check)
        if obstacle:
            self._found.checks.append(Check("decode", SKIPPED, obstacle))
        else:
            self._try_decode(profile)

    def _try_decode(self, profile: Profile | None) -> None:
        try:
            self._check("decode", partial(decode_chunk, self._data, profile))
        except MemoryLimitError as error:
            self._found.checks.append(Check("decode", SKIPPED, str(error)))
