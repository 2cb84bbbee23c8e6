"""What other work on the machine does to an emulated link; runs say it of themselves, and tests bear it."""


def starved(reasons):
    """Whether a run is invalid, and all it holds against itself is lateness, its rate, or that it lacked processors."""
    said = ("ms late: ", "rate error of ", "the processors were starved: ", "ms off the planned round trip")
    # what was held up comes in a bunch: a consequence, never alone
    causes = [reason for reason in reasons if "arrived beyond capacity" not in reason]
    return bool(causes) and all(any(words in reason for words in said) for reason in causes)
