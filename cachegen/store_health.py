"""Whether a store that fails is worth another request, and when."""

# After failures in a row the store is left in peace for a while, doubling from the first to the last of these.
_BACKOFF_S = (0.1, 2.0)
# So many failures in a row, each asked for after the one before, and the store is given up: about three seconds of
# waiting in all, besides what each request takes to fail.
_MAX_IN_A_ROW = 5
# Once the deadline has passed, no longer than this.
_MAX_IN_A_ROW_LATE = 2


class StoreHealth:
    """Counts a store's failures in a row during one load.

    Attributes
    ----------
    given_up : bool
        Nothing more should be asked for during this load.
    """

    def __init__(self) -> None:
        self.given_up = False
        self._in_a_row = 0
        self._failed_s = self._ask_from_s = 0.0

    def may_ask(self, now_s: float) -> bool:
        """Whether it has been left in peace for long enough."""
        return not self.given_up and now_s >= self._ask_from_s

    def answered(self) -> None:
        """It has brought an object, or said that it has none."""
        self._in_a_row = 0

    def failed(self, asked_s: float, now_s: float, deadline_s: float) -> None:
        """It has failed to bring an object; several that break off together are one failure."""
        if self._in_a_row and asked_s <= self._failed_s:
            return
        first_s, longest_s = _BACKOFF_S
        self._ask_from_s = now_s + min(longest_s, first_s * 2**self._in_a_row)
        self._in_a_row += 1
        self._failed_s = now_s
        self.given_up = self._in_a_row >= (_MAX_IN_A_ROW_LATE if now_s > deadline_s else _MAX_IN_A_ROW)
