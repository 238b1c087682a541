"""A real S3 server on loopback: SeaweedFS, with one identity that may do all and one that may only read."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KEY, SECRET = "perennial-key", "perennial-secret-that-nobody-may-print"
READER_KEY, READER_SECRET = "reader-key", "reader-secret-that-nobody-may-print"
BUCKET = "perennial"
PORTS = (
    *("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc"),
    *("s3.port", "s3.port.grpc"),
)
START_SECONDS = 60


@dataclass(frozen=True)
class Server:
    """Where the server listens, and the environment and declaration by which a process reaches it."""

    endpoint: str
    process: subprocess.Popen[bytes]

    def store(self, **changes: Any) -> dict[str, Any]:
        """A declared store of the bucket; its credentials stand in the environment that ``env`` gives."""
        return {
            "type": "s3",
            "name": "lake",
            "bucket": BUCKET,
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key": {"env": "LAKE_KEY"},
            "secret_key": {"env": "LAKE_SECRET"},
            **changes,
        }

    @staticmethod
    def env() -> dict[str, str]:
        """The credentials of the identity that may do all."""
        return {"LAKE_KEY": KEY, "LAKE_SECRET": SECRET}


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on, all different."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _identities(folder: Path) -> Path:
    path = folder / "s3.json"
    identities = [
        {
            "name": "all",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        },
        {
            "name": "reader",
            "credentials": [{"accessKey": READER_KEY, "secretKey": READER_SECRET}],
            "actions": ["Read", "List"],
        },
    ]
    path.write_text(json.dumps({"identities": identities}))
    return path


def client(server: Server) -> Any:
    """botocore's own client, for what tests do beside the store."""
    import botocore.session

    return botocore.session.Session().create_client(
        "s3",
        endpoint_url=server.endpoint,
        region_name="us-east-1",
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
    )


@contextmanager
def serve(folder: Path) -> Iterator[Server]:
    """Starts the server below a folder, makes the bucket, and ends it when the block does."""
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    words = [
        str(Path(sys.executable).parent / "weed"),
        *("-logtostderr", "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3"),
        *(f"-{name}={port}" for name, port in ports.items()),
        *(f"-s3.config={_identities(folder)}", "-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.autoCreateBucket=false"),
        *("-master.telemetry=false", "-master.volumeSizeLimitMB=64", "-volume.max=20", "-volume.preStopSeconds=0"),
        *("-s3.iam=false", f"-s3.localSocket={folder}/s3.sock", f"-filer.localSocket={folder}/filer.sock"),
    ]
    with (folder / "weed.log").open("wb") as log:
        process = subprocess.Popen(
            words, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "HOME": str(folder)}
        )
    server = Server(f"http://127.0.0.1:{ports['s3.port']}", process)
    try:
        _make_bucket(server, folder / "weed.log")
        yield server
    finally:
        process.terminate()
        try:
            process.wait(2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
        shutil.rmtree(folder, ignore_errors=True)


def _make_bucket(server: Server, log: Path) -> None:
    """Waits until the server takes and gives an object, and leaves an empty bucket."""
    from botocore.exceptions import BotoCoreError, ClientError

    s3, until = client(server), time.monotonic() + START_SECONDS
    while True:
        try:
            s3.create_bucket(Bucket=BUCKET)
            s3.put_object(Bucket=BUCKET, Key="first", Body=b"1")
            s3.delete_object(Bucket=BUCKET, Key="first")
        except (BotoCoreError, ClientError) as error:
            if isinstance(error, ClientError) and error.response["Error"]["Code"].startswith("BucketAlready"):
                s3.put_object(Bucket=BUCKET, Key="first", Body=b"1")
                return
            if server.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"no S3 server: {error}\n{log.read_text()[-2000:]}") from error
            time.sleep(0.2)
        else:
            return
