"""What other work on the machine does to an emulated link; runs say it of themselves, and tests bear it."""


def starved(reasons):
    """Whether a run is invalid, and all that it holds against itself is that it came late or at another rate."""
    return bool(reasons) and all("ms late: " in reason or reason.startswith("rate error of ") for reason in reasons)
