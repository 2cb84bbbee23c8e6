"""Real servers of stores on loopback, for tests: Redis, a Redis cluster, and one that speaks S3."""

import itertools
import logging
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import boto3
import redis
from moto.server import ThreadedMotoServer

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
_SLOTS = 16384


def free_port(below: int = 1 << 16) -> int:
    """A port of loopback that nobody listens on; a cluster node needs one under 55536 for its bus."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        if port < below:
            return port


class RedisProcess:
    """A redis-server that keeps nothing on disk."""

    def __init__(self, folder: Path, *options: str, port: int | None = None) -> None:
        self.port = port or free_port()
        self._command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder)]
        self._command += ["--save", "", "--appendonly", "no", "--loglevel", "warning", *options]
        self.start()

    def start(self) -> None:
        """Start, again after a kill, on the same port."""
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        while True:
            assert self.process.poll() is None
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.02)

    def kill(self) -> None:
        """As by kill -9."""
        self.process.kill()
        self.process.wait()

    def client(self) -> redis.Redis:
        """A client of the test's own."""
        return redis.Redis("127.0.0.1", self.port)

    @property
    def url(self) -> str:
        """Of the store."""
        return f"redis://127.0.0.1:{self.port}/0"


@contextmanager
def running_redis(folder: Path, *options: str) -> Iterator[RedisProcess]:
    """A server until the block ends."""
    server = RedisProcess(folder, *options)
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def running_redis_cluster(folder: Path, nodes: int = 3) -> Iterator[list[RedisProcess]]:
    """A cluster of primaries that share the slots, until the block ends."""
    servers = []
    try:
        for index in range(nodes):
            (folder / str(index)).mkdir()
            options = ("--cluster-enabled", "yes")
            servers.append(RedisProcess(folder / str(index), *options, port=free_port(below=55536)))
        bounds = [index * _SLOTS // nodes for index in range(nodes + 1)]
        for server, (first, end) in zip(servers, itertools.pairwise(bounds), strict=True):
            with server.client() as client:
                client.execute_command("CLUSTER ADDSLOTSRANGE", first, end - 1)
                for other in servers:
                    client.execute_command("CLUSTER MEET", "127.0.0.1", other.port)
        for server in servers:
            with server.client() as client:
                while client.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
                    time.sleep(0.05)
                while len(client.execute_command("CLUSTER SLOTS")) < nodes:
                    time.sleep(0.05)
        yield servers
    finally:
        for server in servers:
            server.kill()


@contextmanager
def running_s3(bucket: str) -> Iterator[str]:
    """The endpoint of a server with one bucket, until the block ends."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )
        client.create_bucket(Bucket=bucket)
        client.close()
        yield endpoint
    finally:
        server.stop()


def environment() -> dict[str, str]:
    """That of a process that opens stores."""
    return {**os.environ, **CREDENTIALS}
