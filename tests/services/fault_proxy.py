"""A loopback HTTP/1.1 proxy that injects faults between a client and an S3 server.

Faults are probabilities drawn from a seeded generator, for requests whose ``METHOD /path`` contains ``match``:

- ``p503``: answer ``503 SlowDown`` without forwarding
- ``preset``: reset the connection before forwarding
- ``ptrunc``: cut the answer's body half way
- ``pack_lost``: forward the request, let it take effect, then reset instead of answering (the ambiguous commit)
- ``latency_ms``: wait before forwarding
- ``down``: reset everything

Run in a thread of the test: ``with FaultProxy(endpoint) as proxy: proxy.set(pack_lost=1.0, match="PUT")``.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from dataclasses import dataclass, field, replace
from types import TracebackType
from urllib.parse import urlparse


@dataclass(frozen=True)
class Faults:
    p503: float = 0.0
    preset: float = 0.0
    ptrunc: float = 0.0
    pack_lost: float = 0.0
    latency_ms: float = 0.0
    match: str = ""
    down: bool = False


@dataclass
class Counts:
    requests: int = 0
    struck: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("p503", "preset", "ptrunc", "pack_lost", "down"), 0))


class Reset(Exception):
    """Drop the client's connection with a TCP reset."""


type Head = tuple[bytes, bytes, dict[bytes, bytes]]


async def _head(reader: asyncio.StreamReader) -> Head:
    raw = await reader.readuntil(b"\r\n\r\n")
    first, *rest = raw.split(b"\r\n")
    fields = (line.split(b":", 1) for line in rest if b":" in line)
    return raw, first, {name.strip().lower(): value.strip() for name, value in fields}


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: dict[bytes, bytes], cut: bool = False
) -> None:
    """Copy one body, whole or up to its half."""
    if head.get(b"transfer-encoding") == b"chunked":
        while True:
            line = await reader.readline()
            size = int(line.split(b";")[0], 16)
            writer.write(line + await reader.readexactly(size + 2))
            await writer.drain()
            if not size:
                return
    length = int(head.get(b"content-length", b"0"))
    left = length // 2 if cut else length
    while left:
        data = await reader.read(min(left, 65536))
        if not data:
            raise ConnectionError("the peer hung up")
        writer.write(data)
        await writer.drain()
        left -= len(data)
    if cut:
        raise Reset


class FaultProxy:
    """The proxy, in a thread of its own."""

    def __init__(self, upstream: str, seed: int = 0) -> None:
        parsed = urlparse(upstream)
        self._host, self._port = parsed.hostname or "", parsed.port or 80
        self._random = random.Random(seed)
        self._faults = Faults()
        self.counts = Counts()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.endpoint = ""

    def set(self, **faults: float | str | bool) -> None:
        """Replace all faults."""
        self._faults = replace(Faults(), **faults)  # type: ignore[arg-type]

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 20))
        self.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in self._tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self._loop.close()

    def _strikes(self, fault: str, line: bytes) -> bool:
        faults = self._faults
        due = faults.match.encode() in line and self._random.random() < getattr(faults, fault)
        if due:
            self.counts.struck[fault] += 1
        return due

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        upstream: asyncio.StreamWriter | None = None
        try:
            up_reader, upstream = await asyncio.open_connection(self._host, self._port)
            while await self._exchange(reader, writer, up_reader, upstream):
                pass
        except Reset:
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # either side hung up: the other one is told by closing it
        finally:
            self._tasks.discard(task)
            writer.close()
            if upstream is not None:
                upstream.close()

    async def _exchange(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        up_reader: asyncio.StreamReader,
        up: asyncio.StreamWriter,
    ) -> bool:
        """One request and its answer; False when the connection is over."""
        raw, line, head = await _head(reader)
        self.counts.requests += 1
        await asyncio.sleep(self._faults.latency_ms / 1e3)
        if self._faults.down:
            self.counts.struck["down"] += 1
            raise Reset
        if self._strikes("preset", line):
            raise Reset
        if self._strikes("p503", line):
            body = b'<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>injected</Message></Error>'
            await reader.readexactly(int(head.get(b"content-length", b"0")))
            writer.write(b"HTTP/1.1 503 Slow Down\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
            return False
        up.write(raw)
        await _copy(reader, up, head)
        await up.drain()
        raw, status, answer = await _head(up_reader)
        if self._strikes("pack_lost", line):
            raise Reset
        writer.write(raw)
        if not line.startswith(b"HEAD ") and status.split(b" ")[1] not in (b"204", b"304"):
            cut = int(answer.get(b"content-length", b"0")) > 64 and self._strikes("ptrunc", line)
            await _copy(up_reader, writer, answer, cut)
        await writer.drain()
        return answer.get(b"connection", b"").lower() != b"close"
