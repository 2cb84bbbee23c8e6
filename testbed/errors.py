"""Every error the testbed raises on purpose, below the library's own root.

CachegenError
├── InvalidInputError
│   ├── TraceError       a trace file that cannot be read or replayed
│   ├── RunFileError     a file of a run directory that does not say what it must
│   └── IncomparableError  runs that differ in more than what is to be compared
├── InvalidRunError      a run that says of itself that its figures cannot be used
│   └── BrokenRunError   one that a program of its own broke off
├── LinkError            the emulated link is not what was asked for
├── IsolationError       private namespaces cannot be made here
└── HostError            a program of the run ended or refused
"""

from cachegen import CachegenError, InvalidInputError


class TraceError(InvalidInputError):
    """A trace file that cannot be read or replayed; the message names file, line, column and value."""


class RunFileError(InvalidInputError):
    """A file of a run directory that is missing or unusable; the message names file, place and value."""


class IncomparableError(InvalidInputError):
    """Runs that differ in more than what is to be compared; the message names the field and both values."""


class InvalidRunError(CachegenError):
    """A run whose link was not what its trace asked for, or that did not come to its end; the message says why."""


class BrokenRunError(InvalidRunError):
    """A run that one of its programs broke off."""


class LinkError(CachegenError):
    """The emulated link could not be built, or what was read back differs from what was set."""


class IsolationError(CachegenError):
    """Private namespaces cannot be made here; the message says why and what to do."""


class HostError(CachegenError):
    """A program of the run, on one of its hosts, ended or refused; the message has its last words."""
