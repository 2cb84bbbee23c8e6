"""Every error the testbed raises on purpose, below the library's own root.

CachegenError
├── InvalidInputError
│   └── TraceError       a trace file that cannot be read or replayed
├── LinkError            the emulated link is not what was asked for
├── IsolationError       private namespaces cannot be made here
└── HostError            a program of the run ended or refused
"""

from cachegen import CachegenError, InvalidInputError


class TraceError(InvalidInputError):
    """A trace file that cannot be read or replayed; the message names file, line, column and value."""


class LinkError(CachegenError):
    """The emulated link could not be built, or what was read back differs from what was set."""


class IsolationError(CachegenError):
    """Private namespaces cannot be made here; the message says why and what to do."""


class HostError(CachegenError):
    """A program of the run, on one of its hosts, ended or refused; the message has its last words."""
