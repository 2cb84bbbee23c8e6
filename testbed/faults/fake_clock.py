"""A wall clock that a run can set: libfaketime between the run's programs and the kernel's clock.

The kernel has one wall clock for the whole machine, which no run may touch; a time namespace moves the other clocks
alone. So the library shifts what the programs read of it. Timers and the monotonic clock stay as they are.
"""

from pathlib import Path

from cachegen import InvalidInputError

_LIBRARY = "faketime/libfaketime.so.1"


class FakeClock:
    """The offset that programs see.

    Parameters
    ----------
    file : Path
        Holds the offset; made here.

    Attributes
    ----------
    environment : dict
        For the programs.

    Raises
    ------
    InvalidInputError
        The library is not installed.
    """

    def __init__(self, file: Path) -> None:
        found = sorted([*Path("/usr/lib").glob(f"*/{_LIBRARY}"), *Path("/usr/lib").glob(_LIBRARY)])
        if not found:
            raise InvalidInputError("the fault clock-jump needs libfaketime: install Debian's package faketime")
        self._file = file
        self.environment = {
            "LD_PRELOAD": str(found[0]),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # file times are the kernel's
            "NO_FAKE_STAT": "1",
        }
        self.set(0)

    def set(self, offset_s: int) -> None:
        """Set the programs' wall clock apart from the machine's."""
        scratch = self._file.with_suffix(".new")
        scratch.write_text(f"{offset_s:+d}\n", encoding="ascii")
        scratch.replace(self._file)
