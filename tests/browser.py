"""Chromium without a window, driven through its DevTools protocol over a pipe.

The pipe needs nothing but the standard library: messages are JSON, each ended by a zero byte.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser():
    """Path of an installed Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser with one page; ``errors`` and ``requests`` record what the page did."""

    def __init__(self, path, patience=60.0):
        self.patience = patience
        self.errors, self.requests = [], []
        self._answers, self._events, self._rest, self._count = {}, [], b"", 0
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        low_read, self._to = os.pipe()
        self._from, low_write = os.pipe()
        # The protocol's file descriptors are 3 and 4; a shell puts them there, from higher ones.
        theirs = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (low_read, low_write)]
        command = f'exec "$0" "$@" 3<&{theirs[0]} 4>&{theirs[1]}'
        self._process = subprocess.Popen(
            [
                "bash",
                "-c",
                command,
                path,
                "--headless=new",
                "--remote-debugging-pipe",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                f"--user-data-dir={self._profile.name}",
            ],
            pass_fds=theirs,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for fd in (low_read, low_write, *theirs):
            os.close(fd)
        self._session = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            os.close(self._to)
            os.close(self._from)
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._profile.cleanup()

    def send(self, method, **parameters):
        """Send a command and return its result."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        return self._wait(lambda: self._answers.pop(message["id"], None), method)

    def open(self, path, *, width=1200, height=900, dark=False, phone=False):
        """Load a file and wait until it is there."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[feature])
        self.errors.clear()
        self.requests.clear()
        self._events.clear()
        self.send("Page.navigate", url=Path(path).resolve().as_uri())
        self._wait(lambda: "Page.loadEventFired" in self._events or None, "load")

    def run(self, code):
        """Value of a JavaScript expression in the page."""
        answer = self.send("Runtime.evaluate", expression=code, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"]["exception"].get("description"))
        return answer["result"].get("value")

    def press(self, key):
        """Press and release a key in the element that has the focus."""
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def point(self, x, y):
        """Move the mouse."""
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path):
        """Write a picture of the whole page."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        data = self.send("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"]
        Path(path).write_bytes(base64.b64decode(data))

    def _wait(self, ready, what):
        end = time.monotonic() + self.patience
        while (found := ready()) is None:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._from], [], [], left)[0]:
                raise TimeoutError(f"the browser did not answer: {what}")
            block = os.read(self._from, 1 << 20)
            if not block:
                raise OSError(f"the browser ended: {what}")
            *messages, self._rest = (self._rest + block).split(b"\0")
            for message in messages:
                self._receive(json.loads(message))
        return found

    def _receive(self, message):
        if "id" in message:
            if "error" in message:
                raise AssertionError(message["error"])
            self._answers[message["id"]] = message["result"]
            return
        method, parameters = message["method"], message.get("params", {})
        self._events.append(method)
        if method == "Runtime.exceptionThrown":
            self.errors.append(parameters["exceptionDetails"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
            self.errors.append(parameters["args"])
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.errors.append(parameters["entry"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
