"""From the bytes of a trace file to a recording: by which importer, and what if it is not clear."""

from pathlib import Path

from cachegen import UnknownNameError
from testbed.errors import TraceError
from testbed.traces.importers import IMPORTERS
from testbed.traces.recording import Recording
from testbed.traces.source import Source, shown
from testbed.traces.text_stream import MAX_BYTES, TraceData


def find_trace_file(path: Path) -> TraceData:
    """Return a file's path if it can be read again and again, else (pipes, devices) its bytes.

    Raises
    ------
    TraceError
        It cannot be read, or is no file and too long.
    """
    try:
        with path.open("rb") as file:
            if path.is_file():
                return path
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise TraceError(f"trace {path}: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise TraceError(f"trace {path}: more than {MAX_BYTES >> 20} MiB; cut out the part to be replayed")
    return data


def recognise(source: Source) -> str:
    """Return the name of the one format that a text is of.

    Raises
    ------
    TraceError
        No format fits, or more than one does; the message says which, with their units.
    """
    fitting = [name for name, importer in IMPORTERS.items() if importer.recognises(source)]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        first = source.head(1)[0]
        raise TraceError(
            f"trace {source.path}, line {first.number}: {shown(first.text)} begins no known format: "
            f"{', '.join(IMPORTERS)}; the header of csv must be time_s,rate_mbps[,delay_ms]"
        )
    choices = "; ".join(f"--format {name} ({IMPORTERS[name].summary})" for name in fitting)
    raise TraceError(
        f"trace {source.path}: could be one of several formats, and their units differ. "
        f"Say which it is (--trace-format of testbed/run.py, --format of python -m testbed.traces): {choices}"
    )


def read_recording(
    data: TraceData, path: Path, format_name: str | None = None, series: str | None = None
) -> tuple[str, Recording]:
    """Read a trace file of any known format.

    Parameters
    ----------
    data : bytes or Path
        The file as it lies, or what it holds.
    path : Path
        Stands in error texts.
    format_name : str or None
        Name in ``IMPORTERS``; None: by the file's content.
    series : str or None
        Which of several links in the file; None where there is but one.

    Returns
    -------
    tuple of str and Recording
        The format's name, and what the file says.

    Raises
    ------
    UnknownNameError
        There is no such format.
    TraceError
        The file is not of that format, or a value in it cannot be replayed.
    """
    if format_name is not None and format_name not in IMPORTERS:
        raise UnknownNameError(f"no trace format {format_name!r}; known: {', '.join(IMPORTERS)}")
    source = Source(data, path)
    name = recognise(source) if format_name is None else format_name
    importer = IMPORTERS[name]
    if series is not None and importer.series is None:
        raise TraceError(f"trace {path}: a file of the format {name} holds one link, there is no series {series!r}")
    return name, importer.read(source, series)
