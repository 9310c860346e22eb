"""A folder served over HTTP with byte ranges, on loopback; who wants to count or to fail derives a handler."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

__all__ = ["RangeHandler", "serve"]


class RangeHandler(SimpleHTTPRequestHandler):
    """Files with byte ranges, which the standard library's handler does not know."""

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        data = path.read_bytes()
        first, last = 0, len(data) - 1
        wanted = self.headers.get("Range")
        if wanted:
            low, _, high = wanted.removeprefix("bytes=").partition("-")
            first, last = int(low), min(int(high or last), last)
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.send_header("Content-Length", str(last + 1 - first))
        self.send_header("Last-Modified", self.date_time_string(int(path.stat().st_mtime)))
        self.end_headers()
        self.wfile.write(data[first : last + 1])

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serve(folder: Path, handler: type[RangeHandler] = RangeHandler) -> Iterator[str]:
    """Address of the folder while it is served."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
