"""The controller that knows what the link will do: what the others could at best have done, to measure regret by."""

from collections.abc import Sequence

from cachegen.controllers.meet import MeetController
from cachegen.controllers.plan import LinkForecast

# Share of the time left that its plans may take: they leave out the decoding of chunks, which may fall into the way.
_TARGET_SHARE = 0.9


class OracleController(MeetController):
    """Plans as ``meet`` does, over the link's future instead of an estimate, and leaves little to spare.

    Parameters
    ----------
    encodings
        Names of the encodings to choose from, finest first; at least one.
    forecast
        The link's future, on the request's clock.
    """

    def __init__(self, encodings: Sequence[str], forecast: LinkForecast) -> None:
        super().__init__(encodings, forecast, target_share=_TARGET_SHARE)
