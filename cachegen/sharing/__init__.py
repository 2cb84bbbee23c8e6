"""Ways to divide a link and a compute lane among loads, by name."""

from collections.abc import Callable

from cachegen.errors import UnknownNameError
from cachegen.sharing.base import HostState, Outlook, QueuedLoad, SharingPolicy, Turn
from cachegen.sharing.deadline import DeadlineSharing
from cachegen.sharing.equal import EqualSharing
from cachegen.sharing.shared_host import HostLimits, Seat, SharedHost

__all__ = [
    "SHARING",
    "HostLimits",
    "HostState",
    "Outlook",
    "QueuedLoad",
    "Seat",
    "SharedHost",
    "SharingPolicy",
    "Turn",
    "make_sharing",
]

SHARING: dict[str, Callable[[], SharingPolicy]] = {
    "equal": EqualSharing,
    "deadline": DeadlineSharing,
}


def make_sharing(name: str) -> SharingPolicy:
    """Make the policy of that name.

    Raises
    ------
    UnknownNameError
        There is none; the text lists those there are.
    """
    if name not in SHARING:
        raise UnknownNameError(f"no sharing {name!r}; there are {', '.join(SHARING)}")
    return SHARING[name]()
