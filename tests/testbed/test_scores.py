"""Scores of answers against examples with known values."""

import pytest

from testbed.scores import SCORES, score_answer


@pytest.mark.parametrize(
    ("name", "answer", "expected", "value"),
    [
        ("exact_match", "The  cat!", "cat", 1),
        ("exact_match", "a cat sat", "cat", 0),
        # 2 shared words of 3 and 4: precision 2/3, recall 1/2
        ("f1", "the cat sat down", "cat sat on mat", 4 / 7),
        # a word counts as often as it occurs
        ("f1", "cat cat cat", "cat", 0.5),
        ("f1", "", "cat", 0),
        ("f1", "the", "a", 1),
        (
            "topic",
            " The first topic was: the Benefits of reading, for pleasure!",
            "The benefits of reading for pleasure",
            1,
        ),
        ("topic", "reading", "The benefits of reading for pleasure", 0),
        ("topic", "artisan", "art", 0),
        ("number", "In line 7 it is <2416>.", "2416", 1),
        ("number", "2416, and then 7", "2416", 0),
        ("number", "none", "2416", 0),
        ("needle", " 48213.\nQuestion: what is 7?", "48213", 1),
        ("needle", "4821 or 48213", "48213", 0),
        ("needle", "", "48213", 0),
    ],
)
def test_known_values(name, answer, expected, value):
    assert SCORES[name](answer, expected) == pytest.approx(value)


def test_the_best_of_several_right_answers_counts():
    assert score_answer("exact_match", "Rome", ["Paris", "Rome"]) == 1
    assert score_answer("f1", "Rome", ["Paris", "Oslo"]) == 0


@pytest.mark.parametrize("name", SCORES)
def test_every_score_is_from_0_to_1_whatever_the_answer(name):
    for answer in ("", "7", "the 7 the", "\n\ud7ff", "x" * 1000, "٣"):
        assert 0 <= SCORES[name](answer, "7") <= 1
