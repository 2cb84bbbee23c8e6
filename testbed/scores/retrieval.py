"""Scores of retrieval: was the one thing found that was asked for?"""

import re

from testbed.scores.squad import normalized_words


def names_topic(answer: str, expected: str) -> float:
    """1 if the answer contains the topic, whatever is said around it.

    LongEval asks a human or a larger model whether an answer names the topic; "contains" is what can be computed. Case,
    punctuation and articles do not count.
    """
    found, wanted = (f" {' '.join(normalized_words(text))} " for text in (answer, expected))
    return float(wanted in found)


def last_number(answer: str, expected: str) -> float:
    """1 if the last number of the answer is the expected one, as LongEval judges its lines."""
    numbers = re.findall(r"\d+", answer)
    return float(bool(numbers) and int(numbers[-1]) == int(expected))


def first_number(answer: str, expected: str) -> float:
    """1 if the first number of the answer is the expected one: a model that goes on talking is not punished."""
    numbers = re.findall(r"\d+", answer)
    return float(bool(numbers) and numbers[0] == expected)
