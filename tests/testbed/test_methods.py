import pytest

from cachegen import ENCODINGS, UnknownNameError
from testbed.methods import METHODS, make_method


@pytest.mark.parametrize(("name", "levels"), [("cachegen", 5), ("cachegen-repo", 3), ("transform", 8)])
def test_adaptive_methods_choose_among_all_levels_of_their_codec(name, levels):
    method = make_method(name)

    assert method.encodings == tuple(f"{name}-{level}" for level in range(levels))
    assert method.controller == "paper"


def test_every_encoding_is_a_method_of_its_own():
    for encoding in map(str, ENCODINGS):
        assert (METHODS[encoding].encodings, METHODS[encoding].controller) == ((encoding,), f"fixed:{encoding}")


def test_unknown_methods_are_refused_with_the_known_ones():
    with pytest.raises(UnknownNameError, match=r"text, .*transform, "):
        make_method("teleport")
