"""What the terminal shows: progress on standard error, tables on standard output."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

# Wide enough for every table where nobody's window says how wide it is.
_FILE_WIDTH = 160


class StepView:
    """How far each step of a long command is: bars on a terminal, a line a step elsewhere; a context manager."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=self._console, disable=not self._console.is_terminal)
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> "StepView":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def step(self, name: str, done: int, total: int) -> None:
        """Show that so many parts of a step are done; a new name is a new step."""
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total)
            if not self._console.is_terminal:
                self.note(f"{name} ...")
        self._progress.update(self._tasks[name], completed=done, total=total)

    def note(self, text: str) -> None:
        """Print a line of its own."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def print_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, the first column to the left, the others to the right."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_FILE_WIDTH)
    table = Table(title=title, title_justify="left", box=box.SIMPLE, padding=(0, 1))
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left", no_wrap=place == 0)
    for row in rows:
        table.add_row(*row)
    console.print(table, highlight=False, markup=False)
