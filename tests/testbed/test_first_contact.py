"""The request that does not count streams what opens windows and takes no more than seconds."""

import pytest

from testbed.first_contact import MOST_BYTES, contact_method

WHOLE = {"bytes": {"cachegen-0": 900, "cachegen-4": 300, "quant8": MOST_BYTES, "raw": MOST_BYTES + 1}}
CONTEXT = {"stored": {"": WHOLE, "h2o-50": {"bytes": {"quant8": 1000}}}}


@pytest.mark.parametrize(
    ("methods", "chosen"),
    [
        (["text"], None),
        (["text", "quant8"], "quant8"),
        (["cachegen-4", "cachegen-0", "raw"], "cachegen-0"),
        (["raw"], "raw"),
        (["cachegen-0", "h2o-50+quant8"], "h2o-50+quant8"),
    ],
)
def test_it_is_the_encoding_of_most_bytes_that_fits(methods, chosen):
    assert contact_method(methods, CONTEXT) == chosen
