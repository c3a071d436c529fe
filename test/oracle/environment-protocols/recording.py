"""Start of a server for a recording script."""

import pathlib
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager

HERE = pathlib.Path(__file__).parent


@contextmanager
def running(script, port):
    """Runs a server script on a port while the block runs, from its first answer to `GET /health`."""
    server = subprocess.Popen([sys.executable, str(HERE / script), str(port)])
    try:
        for _ in range(120):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health").read()
                break
            except OSError:
                time.sleep(0.5)
        yield
    finally:
        server.terminate()
