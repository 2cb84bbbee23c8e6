"""The controller that knows what the link will do: what the others could at best have done, to measure regret by."""

from collections.abc import Sequence

from cachegen.controllers.meet import MeetController
from cachegen.controllers.plan import LinkForecast

# Share of the time left that its plans may take. They take one level for all that remains and think that objects follow
# each other, which the first ones do not: with less to spare it misses deadlines that it could have held.
_TARGET_SHARE = 0.8


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
