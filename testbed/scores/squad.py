"""Token F1 and exact match as SQuAD defines them (Rajpurkar et al., EMNLP 2016): over words, after normalisation."""

import string
from collections import Counter

_ARTICLES = {"a", "an", "the"}
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized_words(text: str) -> list[str]:
    """The words of a text in lower case, without punctuation and articles."""
    return [word for word in text.lower().translate(_NO_PUNCTUATION).split() if word not in _ARTICLES]


def exact_match(answer: str, expected: str) -> float:
    """1 if both have the same words in the same order, else 0."""
    return float(normalized_words(answer) == normalized_words(expected))


def token_f1(answer: str, expected: str) -> float:
    """Harmonic mean of precision and recall of the answer's words, each counted as often as it occurs."""
    found, wanted = normalized_words(answer), normalized_words(expected)
    if not (found and wanted):
        return float(found == wanted)
    shared = (Counter(found) & Counter(wanted)).total()
    return 2 * shared / (len(found) + len(wanted))
