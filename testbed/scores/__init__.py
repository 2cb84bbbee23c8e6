"""Scores of an answer, by name: from the answer and the answers that are right to a number from 0 to 1."""

from collections.abc import Callable, Sequence

from testbed.scores.retrieval import first_number, last_number, names_topic
from testbed.scores.squad import exact_match, token_f1

# Adding one: a module here, and a line.
SCORES: dict[str, Callable[[str, str], float]] = {
    "topic": names_topic,
    "number": last_number,
    "needle": first_number,
    "f1": token_f1,
    "exact_match": exact_match,
}
# Those whose right answers are whole numbers.
SCORES_OF_NUMBERS = {"number", "needle"}


def score_answer(name: str, answer: str, expected: Sequence[str]) -> float:
    """Return the best score that an answer has against one of those that are right.

    Parameters
    ----------
    name : str
        Of the score.
    expected : sequence of str
        At least one.
    """
    return max(SCORES[name](answer, right) for right in expected)
