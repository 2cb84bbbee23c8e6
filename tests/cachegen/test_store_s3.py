"""The store in S3: what the service refuses surfaces with the bucket's name."""

import urllib.request

import boto3
import pytest
from store_servers import CREDENTIALS, free_port, running_s3

from cachegen.errors import ObjectNotFoundError, StoreUnavailableError
from cachegen.stores import open_store

BUCKET = "bucket-1"


@pytest.fixture(scope="module")
def endpoint():
    with running_s3(BUCKET) as endpoint:
        yield endpoint


@pytest.fixture(autouse=True)
def credentials(monkeypatch):
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


def calls(store):
    """Every call that reaches the server."""
    return (
        *(
            lambda: store.put("a/b", b"1"),
            lambda: store.put_new("a/b", b"1"),
            lambda: store.put("a/b", bytes(6 * 2**20)),
        ),
        *(lambda: store.get("a/b"), lambda: store.get("a/b", 3, 5), lambda: store.get("a/b", 3, 3)),
        lambda: list(store.read("a/b", 5)),
        *(lambda: store.size("a/b"), lambda: store.delete("a/b"), store.names, store.entries),
    )


def test_a_bucket_that_is_not_there_is_unavailable_rather_than_empty(endpoint):
    for call in calls(open_store(f"s3://no-such-bucket/p?endpoint={endpoint}&region=us-east-1")):
        with pytest.raises(StoreUnavailableError, match=r"s3://no-such-bucket/p.*NoSuchBucket"):
            call()


def test_credentials_that_are_refused_surface(endpoint, monkeypatch):
    store = open_store(f"s3://{BUCKET}/p?endpoint={endpoint}")
    store.put("a/b", b"12345")
    checked_after(endpoint, 0)
    try:
        for call in calls(store):
            with pytest.raises(StoreUnavailableError, match=f"s3://{BUCKET}/p.*(InvalidAccessKeyId|403)"):
                call()
    finally:
        checked_after(endpoint, 10**6)
    assert store.get("a/b") == b"12345"


def checked_after(endpoint, requests):
    """Let the server check credentials after so many requests."""
    body = urllib.request.Request(
        f"{endpoint}/moto-api/reset-auth", str(requests).encode(), {"Content-Type": "text/plain"}, method="POST"
    )
    urllib.request.urlopen(body).read()


def test_a_server_that_is_not_there_surfaces(monkeypatch):
    port = free_port()
    store = open_store(f"s3://{BUCKET}/p?endpoint=http://127.0.0.1:{port}")
    for call in (lambda: store.put("a", b"1"), lambda: store.get("a"), store.names):
        with pytest.raises(StoreUnavailableError, match=f"s3://{BUCKET}/p.*127.0.0.1:{port}"):
            call()


def test_objects_lie_below_the_prefix_and_nothing_else_is_seen(endpoint):
    client = boto3.client("s3", endpoint_url=endpoint)
    client.put_object(Bucket=BUCKET, Key="other/foreign", Body=b"1")
    client.put_object(Bucket=BUCKET, Key="mine/no name.txt", Body=b"1")
    store = open_store(f"s3://{BUCKET}/mine?endpoint={endpoint}")
    store.put("a/b", b"1")

    assert store.names() == ["a/b"]
    assert client.get_object(Bucket=BUCKET, Key="mine/a/b")["Body"].read() == b"1"
    with pytest.raises(ObjectNotFoundError, match=f"s3://{BUCKET}/mine/foreign"):
        store.get("foreign")
    assert open_store(f"s3://{BUCKET}?endpoint={endpoint}").get("mine/a/b") == b"1"
    client.close()


def test_large_objects_are_uploaded_in_parts_that_end_as_one(endpoint):
    client = boto3.client("s3", endpoint_url=endpoint)
    open_store(f"s3://{BUCKET}?endpoint={endpoint}").put("large", bytes(12 * 2**20))

    assert "-" in client.head_object(Bucket=BUCKET, Key="large")["ETag"]  # of a multipart upload
    assert "Uploads" not in client.list_multipart_uploads(Bucket=BUCKET)
    client.close()
