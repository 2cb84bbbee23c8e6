import pytest

from cachegen.codecs import CODECS
from cachegen.encoding import CODEC_LEVELS, ENCODINGS, Encoding, parse_encoding
from cachegen.errors import InvalidInputError, UnknownNameError


def test_every_encoding_parses_from_its_own_name():
    assert [parse_encoding(str(encoding)) for encoding in ENCODINGS] == list(ENCODINGS)


def test_names_are_those_users_type():
    assert [str(encoding) for encoding in ENCODINGS] == [
        "raw",
        "quant8",
        "quant4",
        "quant3",
        *(f"cachegen-{level}" for level in range(5)),
        *(f"cachegen-repo-{level}" for level in range(3)),
        *(f"transform-{level}" for level in range(8)),
    ]


@pytest.mark.parametrize(
    "text", ["", "gzip", "cachegen", "cachegen-5", "cachegen-repo", "cachegen-repo-3", "cachegen-01", "raw-0", "QUANT8"]
)
def test_unknown_names_are_refused_with_the_known_ones(text):
    with pytest.raises(UnknownNameError, match=r"raw, quant8, .*cachegen-4"):
        parse_encoding(text)


@pytest.mark.parametrize(("codec", "level"), [("raw", 0), ("quant8", 1), ("cachegen", None), ("cachegen", 5)])
def test_levels_a_codec_does_not_have_are_refused(codec, level):
    with pytest.raises(InvalidInputError, match="level"):
        Encoding(codec, level)


def test_every_codec_of_an_encoding_is_registered_under_its_name():
    assert list(CODECS) == list(CODEC_LEVELS)
    assert all(codec.name == name for name, codec in CODECS.items())
