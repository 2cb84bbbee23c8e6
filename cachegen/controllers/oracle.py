"""The controller that knows what the link will do: what the others could at best have done, to measure regret by."""

from collections.abc import Sequence

from cachegen.controllers.meet import MeetController
from cachegen.controllers.plan import LinkForecast


class OracleController(MeetController):
    """Plans as ``meet`` does, over the link's future instead of an estimate, and leaves nothing to spare.

    Parameters
    ----------
    encodings
        Names of the encodings to choose from, finest first; at least one.
    forecast
        The link's future, on the request's clock.
    """

    def __init__(self, encodings: Sequence[str], forecast: LinkForecast) -> None:
        super().__init__(encodings, forecast, target_share=1.0)
