"""The controllers by name: who decides, chunk by chunk, how a context is loaded."""

from collections.abc import Callable, Sequence

from cachegen.controllers.base import (
    RECOMPUTE,
    Action,
    ChunkOptions,
    Controller,
    Decision,
    LoadState,
    Recompute,
    Stream,
)
from cachegen.controllers.fixed import FixedController
from cachegen.controllers.paper import PaperController
from cachegen.controllers.text import TextController
from cachegen.errors import InvalidInputError, UnknownNameError

__all__ = [
    "CONTROLLERS",
    "RECOMPUTE",
    "Action",
    "ChunkOptions",
    "Controller",
    "Decision",
    "LoadState",
    "Recompute",
    "Stream",
    "make_controller",
]


def _make_text(argument: str, encodings: Sequence[str]) -> Controller:  # noqa: ARG001 - it streams nothing
    _refuse_argument("text", argument)
    return TextController()


def _make_fixed(argument: str, encodings: Sequence[str]) -> Controller:
    if argument not in encodings:
        raise UnknownNameError(f"fixed:{argument}: no such encoding; there are {', '.join(encodings)}")
    return FixedController(argument)


def _make_paper(argument: str, encodings: Sequence[str]) -> Controller:
    _refuse_argument("paper", argument)
    return PaperController(encodings)


def _refuse_argument(name: str, argument: str) -> None:
    if argument:
        raise InvalidInputError(f"controller {name} takes no argument, got {argument!r}")


# Each maker takes the text after the colon of its spec, and the encodings to choose from, finest first.
CONTROLLERS: dict[str, Callable[[str, Sequence[str]], Controller]] = {
    "fixed": _make_fixed,
    "paper": _make_paper,
    "text": _make_text,
}


def make_controller(spec: str, encodings: Sequence[str]) -> Controller:
    """Make the controller that ``spec`` names: ``text``, ``fixed:<encoding>`` or ``paper``.

    Parameters
    ----------
    spec
        A name of ``CONTROLLERS``, with an argument after a colon where it takes one.
    encodings
        Names of the encodings it may choose from, finest first.

    Raises
    ------
    UnknownNameError
        No such controller, or ``fixed`` with an encoding that is not among ``encodings``.
    InvalidInputError
        An argument that the controller does not take, or no encodings for ``paper``.
    """
    name, _, argument = spec.partition(":")
    if name not in CONTROLLERS:
        raise UnknownNameError(f"no controller {name!r}; there are {', '.join(sorted(CONTROLLERS))}")
    return CONTROLLERS[name](argument, encodings)
