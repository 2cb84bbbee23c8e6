"""Which bytes a request gets, by its headers alone."""

import pytest

from cachegen.server.selection import Selection, select

ETAG = '"1-2-64"'
WHOLE = Selection(200, 0, 100)


@pytest.mark.parametrize(
    ("headers", "selection"),
    [
        ({}, WHOLE),
        ({"Range": "bytes=0-9"}, Selection(206, 0, 10)),
        ({"Range": "Bytes = 0-9"}, Selection(206, 0, 10)),
        ({"Range": "bytes=90-"}, Selection(206, 90, 100)),
        ({"Range": "bytes=-10"}, Selection(206, 90, 100)),
        ({"Range": "bytes=-1000"}, Selection(206, 0, 100)),
        ({"Range": "bytes=90-1000"}, Selection(206, 90, 100)),
        ({"Range": "bytes=-0"}, Selection(416)),
        ({"Range": "bytes=100-"}, Selection(416)),
        ({"Range": "bytes=9-3"}, Selection(416)),
        ({"Range": "bytes=-"}, Selection(416)),
        ({"Range": "bytes="}, Selection(416)),
        ({"Range": "bytes=0-1,5-6"}, Selection(416)),
        ({"Range": "bytes=٠-٩"}, Selection(416)),
        ({"Range": "bytes=" + "9" * 4000 + "-"}, Selection(416)),
        # a unit that this server does not know is no range at all
        ({"Range": "items=0-9"}, WHOLE),
        ({"Range": "bytes=0-9", "If-Range": ETAG}, Selection(206, 0, 10)),
        ({"Range": "bytes=0-9", "If-Range": '"another"'}, WHOLE),
        ({"Range": "bytes=0-9", "If-Range": f"W/{ETAG}"}, WHOLE),
        ({"Range": "bytes=0-9", "If-Range": "Tue, 01 Jan 2030 00:00:00 GMT"}, WHOLE),
        ({"If-None-Match": ETAG}, Selection(304)),
        ({"If-None-Match": f'"x", W/{ETAG}'}, Selection(304)),
        ({"If-None-Match": "*"}, Selection(304)),
        ({"If-None-Match": '"x"'}, WHOLE),
        ({"If-None-Match": ETAG, "Range": "bytes=0-9"}, Selection(304)),
        ({"If-Match": ETAG}, WHOLE),
        ({"If-Match": "*"}, WHOLE),
        ({"If-Match": '"x"'}, Selection(412)),
        ({"If-Match": f"W/{ETAG}"}, Selection(412)),
    ],
)
def test_request_gets_what_its_headers_say(headers, selection):
    assert select(100, ETAG, headers) == selection


def test_an_empty_object_has_no_range():
    assert select(0, ETAG, {}) == Selection(200, 0, 0)
    assert select(0, ETAG, {"Range": "bytes=0-"}) == Selection(416)
