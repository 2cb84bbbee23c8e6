"""A section of rANS streams: read and checked as a whole, decoded some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from cachegen.codecs.streams import read_streams
from cachegen.errors import FormatError
from cachegen.kernels.base import Backend, Symbols
from cachegen.kernels.tables import FrequencyTables


class RowStreams:
    """Symbols of a section, one stream for each (layer, K/V) row.

    Parameters
    ----------
    place : str
        Codec and section, for errors.
    body : memoryview or None
        The section; None if the chunk has no symbols of this kind.
    tables : FrequencyTables
        What the streams were coded with.
    num_tokens : int
        Symbols of each channel.
    largest : int
        Largest magnitude of an escaped value.
    backend : Backend
        Decodes.

    Raises
    ------
    FormatError
        A length, lane count, state or escape that no encoder writes.
    """

    def __init__(
        self,
        place: str,
        body: memoryview | None,
        tables: FrequencyTables,
        num_tokens: int,
        largest: int,
        backend: Backend,
    ) -> None:
        self._place, self._tables, self._num_tokens, self._backend = place, tables, num_tokens, backend
        with self._errors_with_place():
            self._coded = None if body is None else read_streams(body, num_tokens, tables, largest)

    def decode(self, rows: slice) -> Symbols:
        """Symbols of some rows; FormatError names the first whose stream is not sound."""
        if self._coded is None:
            first, end, _ = rows.indices(self._tables.rows)
            return np.empty((end - first, self._tables.channels, 0), dtype=np.int32)
        with self._errors_with_place():
            return self._backend.decode_streams(self._coded, self._num_tokens, self._tables, rows)

    @contextmanager
    def _errors_with_place(self) -> Iterator[None]:
        try:
            yield
        except FormatError as error:
            raise FormatError(f"{self._place}: {error}") from error
