"""A store in Redis or Valkey: bounded values, published by one script so that no reader sees half of an object.

An object ``NAME`` is these keys, all with the hash tag ``{NAME}``, so a cluster keeps them on one node:

- ``cachegen:{NAME}:head``, a hash: ``size``, ``parts``, ``generation`` (random, of this put), ``modified`` (seconds, by
  the server's clock);
- ``cachegen:{NAME}:0``, its first ``PART_BYTES``: fixed, so that head and data come in one round trip;
- ``cachegen:{NAME}:GENERATION:I``, its further parts.

A put writes parts under names of its own that expire, so those of a writer that dies vanish. A script then makes them
permanent, moves the first in its place and sets the head. Parts of the object that was replaced live on for
``GRACE_S``, for those who read them; a reader that comes later than that begins again with the new head.
"""

import secrets
import time
from collections.abc import Generator, Sequence
from typing import Any

from cachegen.errors import ObjectNotFoundError, StoreUnavailableError
from cachegen.stores.base import StoredObject, check_name, check_range, is_name
from cachegen.stores.piece_size import PieceSize
from cachegen.stores.redis_client import RedisServer

PART_BYTES = 8 * 2**20
# No put takes longer; parts of dead writers are gone after it.
UNFINISHED_S = 3600
GRACE_S = 60
_PREFIX = "cachegen:"
# What is asked in one round trip: heads of a listing, and parts, whose answers wait in the server's memory.
_HEADS_AT_ONCE, _PARTS_AT_ONCE = 500, 4
# An object that is replaced under a reader this often in a row is being replaced all the time.
_MAX_ATTEMPTS = 20

# KEYS: head, first part, temporary first part (when there are parts), further parts, parts of the generation before.
# ARGV: size, parts, generation, generation before or "", grace in seconds.
# Answers ok; changed: another writer was faster; lost: a part has expired or was evicted.
_PUBLISH = """
local generation = redis.call('HGET', KEYS[1], 'generation') or ''
if generation == ARGV[3] then return 'ok' end
if generation ~= ARGV[4] then return 'changed' end
local parts = tonumber(ARGV[2])
for i = 3, 2 + parts do
  if redis.call('EXISTS', KEYS[i]) == 0 then return 'lost' end
end
for i = 4, 2 + parts do redis.call('PERSIST', KEYS[i]) end
for i = 3 + parts, #KEYS do redis.call('EXPIRE', KEYS[i], ARGV[5]) end
if parts > 0 then
  redis.call('PERSIST', KEYS[3])
  redis.call('RENAME', KEYS[3], KEYS[2])
else
  redis.call('UNLINK', KEYS[2])
end
local now = redis.call('TIME')
local modified = now[1] .. '.' .. string.format('%06d', now[2])
redis.call('HSET', KEYS[1], 'size', ARGV[1], 'parts', ARGV[2], 'generation', ARGV[3], 'modified', modified)
return 'ok'
"""
# KEYS: head, first part, further parts. ARGV: their generation.
_DELETE = """
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then return 'changed' end
for i = 1, #KEYS do redis.call('UNLINK', KEYS[i]) end
return 'ok'
"""


class _Keys:
    """The keys of one object."""

    def __init__(self, name: str) -> None:
        check_name(name)
        self.name = name
        self._stem = f"{_PREFIX}{{{name}}}"
        self.head, self.first = f"{self._stem}:head", f"{self._stem}:0"

    def part(self, generation: str, index: int) -> str:
        return f"{self._stem}:{generation}:{index}"

    def further(self, generation: str, num_parts: int) -> list[str]:
        return [self.part(generation, index) for index in range(1, num_parts)]


class _Head:
    """What a head says; ``generation`` is empty where there is none."""

    def __init__(self, fields: Sequence[bytes | None]) -> None:
        size, parts, generation, modified = (field or b"" for field in fields)
        self.size_bytes, self.num_parts = int(size or 0), int(parts or 0)
        self.generation, self.modified_s = generation.decode(), float(modified or 0)


_HEAD_FIELDS = ["size", "parts", "generation", "modified"]


class RedisStore:
    """Objects in a Redis or Valkey server or cluster; safe for concurrent writers.

    Durable as far as the server is told to persist. Its ``maxmemory-policy`` must not evict keys without expiry
    (``noeviction`` or ``volatile-*``): an object that loses a part to it is not found any more.
    """

    def __init__(self, server: RedisServer) -> None:
        self._server, self._client = server, server.client

    def put(self, name: str, data: bytes) -> None:
        """See ``Store.put``; in memory of the server when it returns."""
        self._write(name, data, replace=True)

    def put_new(self, name: str, data: bytes) -> bool:
        """See ``Store.put_new``."""
        return self._write(name, data, replace=False)

    def _write(self, name: str, data: bytes, *, replace: bool) -> bool:
        keys, generation = _Keys(name), secrets.token_hex(8)
        view = memoryview(data)
        num_parts = -(-len(data) // PART_BYTES)
        with self._server.refusals_named(name):
            for index in range(num_parts):
                part = view[index * PART_BYTES : (index + 1) * PART_BYTES]
                self._client.set(keys.part(generation, index), part, ex=UNFINISHED_S)
            own = [keys.part(generation, index) for index in range(num_parts)]
            for _ in range(_MAX_ATTEMPTS):
                before = self._head(keys)
                if before.generation and not replace:
                    self._drop(own)
                    return False
                listed = [keys.head, keys.first, *own, *keys.further(before.generation, before.num_parts)]
                arguments = map(str, (len(data), num_parts, generation, before.generation, GRACE_S))
                match self._client.eval(_PUBLISH, len(listed), *listed, *arguments):
                    case b"ok":
                        return True
                    case b"lost":
                        raise StoreUnavailableError(f"{self._server.label}: {name}: the server dropped parts of a put")
        raise self._restless(name)

    def touch(self, name: str) -> None:
        """See ``Store.touch``."""
        self.put(name, b"")

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """See ``Store.get``; one round trip for what lies in the first ``PART_BYTES``."""
        check_range(start, end)
        keys = _Keys(name)
        with self._server.refusals_named(name):
            for _ in range(_MAX_ATTEMPTS):
                head, pieces = self._first(keys, start, end)
                if not head.generation:
                    raise self._missing(name)
                stop = head.size_bytes if end is None else min(end, head.size_bytes)
                pieces += self._further(keys, head, max(start, PART_BYTES), stop)
                if sum(map(len, pieces)) == max(stop - start, 0):
                    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
                if self._head(keys).generation == head.generation:
                    # evicted or expired under a policy that the class forbids: no part of an object is an object
                    raise self._missing(name)
        raise self._restless(name)

    def read(self, name: str, end: int) -> Generator[bytes, None, None]:
        """See ``Store.read``; a round trip for each piece, of which a fast link gets large ones."""
        check_range(0, end)
        keys, pace = _Keys(name), PieceSize(PART_BYTES)
        with self._server.refusals_named(name):
            asked_s = time.monotonic()
            head, pieces = self._first(keys, 0, min(end, pace.num_bytes))
            place, stop = 0, min(end, head.size_bytes)
            while place < stop:
                pace.note(time.monotonic() - asked_s)
                piece = b"".join(pieces)
                place += len(piece)
                yield piece
                asked_s = time.monotonic()
                pieces = self._next(keys, head, place, min(place + pace.num_bytes, stop))
        if not head.generation:
            raise self._missing(name)

    def size(self, name: str) -> int:
        """See ``Store.size``."""
        with self._server.refusals_named(name):
            head = self._head(_Keys(name))
        if not head.generation:
            raise self._missing(name)
        return head.size_bytes

    def names(self, prefix: str = "") -> list[str]:
        """See ``Store.names``; an object that is put or deleted meanwhile may be listed or not."""
        # of all that a name can hold, nothing is special to SCAN; a prefix that no name has must not become a pattern
        if prefix and not is_name(prefix.removesuffix("/")):
            return []
        pattern = f"{_PREFIX}{{{prefix}*}}:head"
        with self._server.refusals_named(f"{prefix}*"):
            found = {bytes(key).decode() for key in self._client.scan_iter(match=pattern, count=1000)}
        names = (key.removeprefix(f"{_PREFIX}{{").removesuffix("}:head") for key in found)
        return sorted(name for name in names if is_name(name))

    def entries(self, prefix: str = "") -> list[StoredObject]:
        """See ``Store.entries``; the clock is that of the server, in a cluster that of the object's node."""
        found = []
        listed = self.names(prefix)
        for first in range(0, len(listed), _HEADS_AT_ONCE):
            names = listed[first : first + _HEADS_AT_ONCE]
            with self._server.refusals_named(f"{prefix}*"):
                answers = self._together([("HMGET", _Keys(name).head, *_HEAD_FIELDS) for name in names])
            heads = zip(names, map(_Head, answers), strict=True)
            found += [StoredObject(name, head.size_bytes, head.modified_s) for name, head in heads if head.generation]
        return found

    def delete(self, name: str) -> None:
        """See ``Store.delete``; the memory is free when it returns, and readers find the object missing."""
        keys = _Keys(name)
        with self._server.refusals_named(name):
            for _ in range(_MAX_ATTEMPTS):
                head = self._head(keys)
                if not head.generation:
                    raise self._missing(name)
                listed = [keys.head, keys.first, *keys.further(head.generation, head.num_parts)]
                if self._client.eval(_DELETE, len(listed), *listed, head.generation) == b"ok":
                    return
        raise self._restless(name)

    def _drop(self, keys: Sequence[str]) -> None:
        self._together([("UNLINK", key) for key in keys])

    def _head(self, keys: _Keys) -> _Head:
        return _Head(self._together([("HMGET", keys.head, *_HEAD_FIELDS)])[0])

    def _first(self, keys: _Keys, start: int, end: int | None) -> tuple[_Head, list[bytes]]:
        """Head, and what the range takes of the first part, of one moment."""
        commands: list[tuple[Any, ...]] = [("HMGET", keys.head, *_HEAD_FIELDS)]
        commands += _ranges(keys.first, start, PART_BYTES if end is None else min(end, PART_BYTES))
        fields, *pieces = self._together(commands, at_one_moment=True)
        return _Head(fields), pieces

    def _next(self, keys: _Keys, head: _Head, start: int, stop: int) -> list[bytes]:
        """Bytes from ``start`` to ``stop``, or to the end of their part, of the object with this head."""
        stop = min(stop, (start // PART_BYTES + 1) * PART_BYTES)
        if start < PART_BYTES:
            found, pieces = self._first(keys, start, stop)
        else:
            found, pieces = head, self._further(keys, head, start, stop)
        if found.generation != head.generation or sum(map(len, pieces)) != stop - start:
            raise StoreUnavailableError(f"{self._server.label}: {keys.name}: replaced or removed while it was read")
        return pieces

    def _further(self, keys: _Keys, head: _Head, start: int, stop: int) -> list[bytes]:
        """What bytes ``start`` to ``stop`` take of the parts behind the first; less where a part is gone."""
        commands: list[tuple[Any, ...]] = []
        for index in range(start // PART_BYTES, -(-stop // PART_BYTES)):
            first = index * PART_BYTES
            key = keys.part(head.generation, index)
            commands += _ranges(key, max(start - first, 0), min(stop - first, PART_BYTES))
        pieces: list[bytes] = []
        for place in range(0, len(commands), _PARTS_AT_ONCE):
            pieces += self._together(commands[place : place + _PARTS_AT_ONCE])
        return pieces

    def _together(self, commands: Sequence[tuple[Any, ...]], *, at_one_moment: bool = False) -> list[Any]:
        """Answers to commands that are sent in one go."""
        with self._client.pipeline(transaction=at_one_moment) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            return list(pipeline.execute())

    def _missing(self, name: str) -> ObjectNotFoundError:
        return ObjectNotFoundError(f"{self._server.label}: {name}: no such object")

    def _restless(self, name: str) -> StoreUnavailableError:
        return StoreUnavailableError(f"{self._server.label}: {name}: replaced {_MAX_ATTEMPTS} times in a row")


def _ranges(key: str, start: int, stop: int) -> list[tuple[Any, ...]]:
    """Command for bytes ``start`` to ``stop`` of a value, if these are any; GETRANGE counts the last one in."""
    return [("GETRANGE", key, start, stop - 1)] if start < stop else []
