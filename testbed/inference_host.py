"""The process on the ``gpu`` host: holds the model, stores contexts offline, then serves requests over the link.

It reads one JSON object a line from standard input and answers with such lines on standard output:
``progress``, ``ready``, ``event``, ``results`` and ``error``. It ends when its input ends.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

from cachegen import CachegenError, InvalidInputError, LinkKnowledge, UnsupportedModelError
from testbed.batch_service import BatchService, KeptSources
from testbed.prepare import prepare
from testbed.trace import load_trace


class Answers:
    """Writes answers as JSON lines; from any thread, one line at a time."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, kind: str, **fields: Any) -> None:
        """Send one answer."""
        # a single write of a whole line: two threads cannot mix theirs
        self._stream.write(json.dumps({"type": kind, **fields}) + "\n")
        self._stream.flush()


def main() -> None:
    """Answer messages until the input ends."""
    # Libraries print; only this program's own lines may reach the reader.
    answer = Answers(os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8"))
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        _run(sys.stdin, answer)
    except CachegenError as error:
        refused = isinstance(error, InvalidInputError | UnsupportedModelError)
        answer("error", error=str(error), refused=refused)


def _run(messages: TextIO, answer: Answers) -> None:
    settings = json.loads(messages.readline())
    prepared = prepare(settings, _progress(answer))
    # once, before anything is timed: a recording may take seconds to read
    trace = load_trace(settings["trace"], settings["trace_format"], settings["trace_series"])
    answer("ready", **prepared.summary())
    links: dict[str, LinkKnowledge] = {}
    sources = KeptSources(settings["requests"])
    with asyncio.Runner() as runner:  # one loop for all: connections belong to theirs
        for line in messages:
            service = BatchService(prepared, trace, json.loads(line), answer, links, sources)
            answer("results", results=runner.run(service.run()))
        runner.run(sources.close())


def _progress(answer: Answers) -> Callable[[str, int, int], None]:
    return lambda step, done, total: answer("progress", step=step, done=done, total=total)


if __name__ == "__main__":
    main()
