"""The controllers by name: who decides, chunk by chunk, how a context is loaded."""

from collections.abc import Callable, Sequence

from cachegen.controllers.base import (
    RECOMPUTE,
    Action,
    ChunkOptions,
    Controller,
    Decision,
    InOrderController,
    LoadState,
    Recompute,
    Stream,
    Transfer,
)
from cachegen.controllers.fixed import FixedController
from cachegen.controllers.meet import MeetController
from cachegen.controllers.oracle import OracleController
from cachegen.controllers.paper import PaperController
from cachegen.controllers.plan import LinkForecast
from cachegen.controllers.text import TextController
from cachegen.errors import InvalidInputError, UnknownNameError

__all__ = [
    "CONTROLLERS",
    "RECOMPUTE",
    "Action",
    "ChunkOptions",
    "Controller",
    "Decision",
    "FixedController",
    "InOrderController",
    "LinkForecast",
    "LoadState",
    "MeetController",
    "Recompute",
    "Stream",
    "Transfer",
    "make_controller",
]


def _make_text(argument: str, encodings: Sequence[str], forecast: LinkForecast | None) -> Controller:  # noqa: ARG001 - it streams nothing
    _refuse_argument("text", argument)
    return TextController()


def _make_fixed(argument: str, encodings: Sequence[str], forecast: LinkForecast | None) -> Controller:  # noqa: ARG001 - it predicts nothing
    if argument not in encodings:
        raise UnknownNameError(f"fixed:{argument}: no such encoding; there are {', '.join(encodings)}")
    return FixedController(argument)


def _make_paper(argument: str, encodings: Sequence[str], forecast: LinkForecast | None) -> Controller:  # noqa: ARG001 - it measures
    _refuse_argument("paper", argument)
    return PaperController(encodings)


def _make_meet(argument: str, encodings: Sequence[str], forecast: LinkForecast | None) -> Controller:  # noqa: ARG001 - it measures
    try:
        target_share = float(argument) if argument else None
    except ValueError as error:
        raise InvalidInputError(f"meet:{argument}: the share of the time left to spend is a number in 0..1") from error
    return MeetController(encodings, target_share=target_share)


def _make_oracle(argument: str, encodings: Sequence[str], forecast: LinkForecast | None) -> Controller:
    _refuse_argument("oracle", argument)
    if forecast is None:
        raise InvalidInputError("controller oracle needs to be told what the link will do")
    return OracleController(encodings, forecast)


def _refuse_argument(name: str, argument: str) -> None:
    if argument:
        raise InvalidInputError(f"controller {name} takes no argument, got {argument!r}")


# Each maker takes the text after the colon of its spec, the encodings to choose from, finest first, and, where there is
# one, the link's future.
CONTROLLERS: dict[str, Callable[[str, Sequence[str], LinkForecast | None], Controller]] = {
    "fixed": _make_fixed,
    "meet": _make_meet,
    "oracle": _make_oracle,
    "paper": _make_paper,
    "text": _make_text,
}


def make_controller(spec: str, encodings: Sequence[str], forecast: LinkForecast | None = None) -> Controller:
    """Make the controller that ``spec`` names: ``text``, ``fixed:<encoding>``, ``paper``, ``meet``, ``meet:<share>``
    or ``oracle``.

    Parameters
    ----------
    spec
        A name of ``CONTROLLERS``, with an argument after a colon where it takes one.
    encodings
        Names of the encodings it may choose from, finest first.
    forecast
        The link's future, for ``oracle`` alone.

    Raises
    ------
    UnknownNameError
        No such controller, or ``fixed`` with an encoding that is not among ``encodings``.
    InvalidInputError
        An argument that the controller does not take, no encodings for one that chooses, or no forecast for ``oracle``.
    """
    name, _, argument = spec.partition(":")
    if name not in CONTROLLERS:
        raise UnknownNameError(f"no controller {name!r}; there are {', '.join(sorted(CONTROLLERS))}")
    return CONTROLLERS[name](argument, encodings, forecast)
