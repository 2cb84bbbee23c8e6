"""Every error this project raises on purpose, in one tree.

CachegenError
├── InvalidInputError        a caller's argument, tensor, file or flag is unusable (also a ValueError)
│   ├── NonFiniteError       a KV tensor holds NaN or Inf
│   └── UnknownNameError     a name that no registry knows (also a LookupError)
├── FormatError              bytes that are not what they claim to be
│   ├── ChecksumError        a checksum does not match
│   └── VersionError         a format version this release cannot read
├── MismatchError            valid bytes that belong to another model, profile, context or chunk
├── UnsupportedModelError    a model whose cache this release cannot code
├── QualityError             an encoding that harms a model's predictions more than allowed
├── MemoryLimitError         memory that could not be had (also a MemoryError)
├── AdmissionError           a load refused at its arrival: a deadline could not be held
└── StoreError               a store or its server did not do what was asked
    ├── ObjectNotFoundError  no such object
    └── StoreUnavailableError  no answer, a broken connection, a refused write

The testbed's own errors hang below ``CachegenError`` too (see ``testbed/errors.py``).
"""


class CachegenError(Exception):
    """Base of every error raised on purpose; its text names what, where and the bad value."""


class InvalidInputError(CachegenError, ValueError):
    """An argument, tensor, file or flag given by the caller is unusable."""


class NonFiniteError(InvalidInputError):
    """A KV tensor holds NaN or Inf; the message names the first place."""


class UnknownNameError(InvalidInputError, LookupError):
    """A name that the registry at hand does not know; the message lists the known ones."""


class FormatError(CachegenError):
    """Bytes that are not what they claim to be."""


class ChecksumError(FormatError):
    """Bytes whose checksum does not match: corrupted at rest or on the way."""


class VersionError(FormatError):
    """A format version that this release cannot read."""


class MismatchError(CachegenError):
    """Valid bytes that belong to another model, profile, context or chunk."""


class UnsupportedModelError(CachegenError):
    """A model whose KV cache this release cannot code; the message says which property."""


class QualityError(CachegenError):
    """An encoding that harms a model's predictions more than the caller allows; the message says by how much."""


class MemoryLimitError(CachegenError, MemoryError):
    """Memory that the machine or a limit did not give; the message says how many bytes were wanted, and for what."""


class AdmissionError(CachegenError):
    """A load refused at its arrival, since a deadline could not be held; the message says when it would end."""


class StoreError(CachegenError):
    """A store or its server did not do what was asked."""


class ObjectNotFoundError(StoreError):
    """The store has no object of that name."""


class StoreUnavailableError(StoreError):
    """The store gave no answer, broke the connection or refused the write."""
