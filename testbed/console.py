"""What the terminal shows of a run: progress while it works, the table at its end."""

import os
import sys
from typing import IO, Any, cast

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from testbed.metrics import RequestRow
from testbed.result_table import result_table

# of the report's columns, those that fit a terminal of 80 characters
_SHOWN = {"method", "met SLO", "violation rate", "TTFT mean s", "p95 s", "MB", "KL", "score"}


class _Output:
    """A text stream whose reader may go (a closed terminal, ``| head``): the rest is lost, and the run goes on."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            return self._lose(len(text))

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            self._lose(0)

    def _lose(self, written: int) -> int:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        # what the stream still holds goes there too, at the interpreter's end at the latest
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
        return written


class RunView:
    """Progress bars on a terminal, plain lines elsewhere; a context manager."""

    def __init__(self) -> None:
        self._console = Console(file=cast(IO[str], _Output(sys.stdout)))
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=self._console, disable=not self._console.is_terminal)
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> "RunView":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def note(self, text: str) -> None:
        """Print a line of its own."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def step(self, name: str, done: int, total: int) -> None:
        """Show how far a step is; a new one gets a new bar, or a line where there is no terminal."""
        if name not in self._tasks:
            for earlier in self._tasks.values():
                self._progress.update(earlier, completed=self._progress.tasks[earlier].total)
            self._tasks[name] = self._progress.add_task(name, total=total)
            if not self._console.is_terminal:
                self.note(f"{name} ...")
        self._progress.update(self._tasks[name], completed=done, total=total)

    def request(self, row: RequestRow, place: int, total: int) -> None:
        """Show the outcome of a request."""
        if row.ttft_ms is None:
            outcome = f"{row.status}: {row.error}"
        else:
            outcome = f"TTFT {row.ttft_ms / 1e3:6.2f} s  {'missed' if row.violation else 'met'}"
        levels = ", ".join(f"{count} × {name}" for name, count in row.levels.items())
        self.note(f"[{place:>3}/{total}] request {row.request} {row.method:<12} {outcome}  {levels}")

    def results(self, summary: dict[str, Any], path: str) -> None:
        """Print the table, the verdict, and where the rest is."""
        slo_s = summary["slo"]["ttft_ms"] / 1e3
        title = f"TTFT over the {summary['trace']} trace, SLO {slo_s:g} s"
        table = Table(title=title, box=box.SIMPLE, padding=(0, 1), collapse_padding=True)
        headings, rows = result_table(summary)
        shown = [place for place, heading in enumerate(headings) if heading in _SHOWN]
        # where the room is short, a long name is broken, and no number
        table.add_column(headings[0], overflow="fold")
        for place in shown[1:]:
            table.add_column(headings[place].replace(" ", "\n"), justify="right", no_wrap=True)
        for row in rows:
            table.add_row(*(row[place] for place in shown))
        self._console.print(table)
        validity = summary["validity"]
        partial = "" if summary["status"] == "complete" else f" (partial: {summary['status']})"
        self.note(f"{validity['verdict']}{partial}  {'; '.join(validity['reasons'] + validity['notes'])}".rstrip())
        self.note(f"report: {path}/report.html")
