"""Account for the machine's processors during a run: what the run used, what others took, who had to wait."""

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# fields of the line "cpu" of /proc/stat
_USER, _NICE, _SYSTEM, _IDLE, _IOWAIT, _STEAL = 0, 1, 2, 3, 4, 7
# fields of /proc/PID/stat, counted behind the command in parentheses
_SESSION, _UTIME, _STIME = 3, 11, 12


@dataclass(frozen=True)
class CpuReading:
    """Counters of one moment, in seconds of processor time since some beginning.

    Parameters
    ----------
    total_s : float
        All processors together, whatever they did.
    working_s : float
        In programs and the kernel on their behalf; interrupts, which carry the emulated link, not counted.
    idle_s, steal_s : float
        With nothing to do; taken by the machine that this one is a guest of.
    own_s : float
        Of ``working_s``, the run's own programs.
    waiting_s : float or None
        Time in which some program waited for a processor, from ``/proc/pressure``; None where the kernel has no such.
    """

    total_s: float
    working_s: float
    idle_s: float
    steal_s: float
    own_s: float
    waiting_s: float | None


@dataclass(frozen=True)
class CpuUse:
    """Shares of the processors' time between two readings, each from 0 to 1.

    Parameters
    ----------
    foreign : float
        Taken by programs that do not belong to the run.
    own, idle, steal : float
        Taken by the run; by none; by the machine below.
    pressure : float or None
        Share of the time in which some program, the run's or another, waited for a processor.
    """

    foreign: float
    own: float
    idle: float
    steal: float
    pressure: float | None


class CpuWatch:
    """Watches the processors from its creation on.

    Parameters
    ----------
    sessions : callable
        Returns the sessions whose processes are the run's; this process is too.
    """

    def __init__(self, sessions: Callable[[], Iterable[int]]) -> None:
        self._sessions = sessions
        self._start_s = time.monotonic()
        self._start = read_cpu(sessions())

    def use(self) -> CpuUse:
        """Return what became of the processors' time since then."""
        return cpu_use(self._start, read_cpu(self._sessions()), time.monotonic() - self._start_s)


def read_cpu(sessions: Iterable[int]) -> CpuReading:
    """Return the counters of now.

    Parameters
    ----------
    sessions : iterable of int
        Sessions whose processes are the run's; this process is too, and its threads.
    """
    columns = [int(field) / TICKS_PER_S for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    pressure = Path("/proc/pressure/cpu")
    try:
        waiting_s = parse_pressure_s(pressure.read_text())
    except OSError:  # an old kernel, or pressure switched off
        waiting_s = None
    return CpuReading(
        # guest time, in the last two columns, is counted in the first two as well
        total_s=sum(columns[:8]),
        working_s=columns[_USER] + columns[_NICE] + columns[_SYSTEM],
        idle_s=columns[_IDLE] + columns[_IOWAIT],
        steal_s=columns[_STEAL],
        own_s=_own_s(set(sessions)),
        waiting_s=waiting_s,
    )


def cpu_use(before: CpuReading, after: CpuReading, duration_s: float) -> CpuUse:
    """Return what became of the processors' time between two readings ``duration_s`` apart."""
    total_s = max(after.total_s - before.total_s, 1 / TICKS_PER_S)
    # a process of the run that has ended is missing in the second reading
    own_s = max(0.0, after.own_s - before.own_s)
    pressure = None
    if before.waiting_s is not None and after.waiting_s is not None:
        pressure = min(1.0, (after.waiting_s - before.waiting_s) / duration_s)
    return CpuUse(
        foreign=max(0.0, after.working_s - before.working_s - own_s) / total_s,
        own=own_s / total_s,
        idle=(after.idle_s - before.idle_s) / total_s,
        steal=(after.steal_s - before.steal_s) / total_s,
        pressure=pressure,
    )


def parse_pressure_s(text: str) -> float:
    """Return the seconds of the line ``some`` of ``/proc/pressure/cpu``."""
    line = next(line for line in text.splitlines() if line.startswith("some "))
    return int(line.rpartition("total=")[2]) / 1e6


def parse_process(text: str) -> tuple[int, float]:
    """Return the session of a process and its processor time in seconds, from ``/proc/PID/stat``."""
    # the command's name stands in parentheses and may hold any character
    fields = text.rpartition(")")[2].split()
    return int(fields[_SESSION]), (int(fields[_UTIME]) + int(fields[_STIME])) / TICKS_PER_S


def _own_s(sessions: set[int]) -> float:
    own_s = 0.0
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            session, spent_s = parse_process((entry / "stat").read_text())
        except OSError:  # it has ended meanwhile
            continue
        if session in sessions or int(entry.name) == os.getpid():
            own_s += spent_s
    return own_s
