import pytest

from cachegen import ENCODINGS, InvalidInputError, UnknownNameError
from testbed.methods import METHODS, make_method


@pytest.mark.parametrize(("name", "levels"), [("cachegen", 5), ("cachegen-repo", 3), ("transform", 8)])
def test_adaptive_methods_choose_among_all_levels_of_their_codec(name, levels):
    method = make_method(name)

    assert method.encodings == tuple(f"{name}-{level}" for level in range(levels))
    assert method.controller == "paper"


def test_every_encoding_is_a_method_of_its_own():
    for encoding in map(str, ENCODINGS):
        assert (METHODS[encoding].encodings, METHODS[encoding].controller) == ((encoding,), f"fixed:{encoding}")


def test_a_controllers_argument_goes_behind_a_colon():
    method = make_method("transform-meet:0.5")
    assert (method.name, method.controller) == ("transform-meet:0.5", "meet:0.5")
    assert method.encodings == METHODS["transform-meet"].encodings
    for wrong in ("transform-meet:2", "transform-meet:quick", "cachegen:1", "transform-oracle:1", "cachegen-0:1"):
        with pytest.raises((InvalidInputError, UnknownNameError), match=wrong.partition(":")[2]):
            make_method(wrong)


def test_unknown_methods_are_refused_with_the_known_ones():
    with pytest.raises(UnknownNameError, match=r"text, .*transform, "):
        make_method("teleport")


@pytest.mark.parametrize("base", ["cachegen", "transform", "cachegen-2", "quant8", "raw", "cachegen-meet"])
def test_a_reduction_goes_before_any_method(base):
    method = make_method(f"h2o-50+{base}")
    assert (method.name, method.reduction) == (f"h2o-50+{base}", "h2o-50")
    assert (method.encodings, method.controller) == (METHODS[base].encodings, METHODS[base].controller)


def test_a_reduction_alone_is_stored_at_8_bits_as_in_the_paper():
    assert make_method("lingua-70").encodings == ("quant8",)


@pytest.mark.parametrize("name", ["h2o-50+", "h2o-50+gzip", "h2o-0+raw", "raw+h2o-50", "h2o-50+h2o-50"])
def test_what_is_no_method_behind_a_reduction_is_refused(name):
    with pytest.raises(UnknownNameError, match=r"no method .*h2o-50\+METHOD, lingua-50\+METHOD"):
        make_method(name)


def test_dropped_entries_cannot_be_recomputed_and_a_shorter_text_can():
    with pytest.raises(InvalidInputError, match=r"h2o-50\+text: h2o-50 leaves no text"):
        make_method("h2o-50+text")
    assert make_method("lingua-50+text").controller == "text"
