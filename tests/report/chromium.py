"""Headless Chromium over the DevTools protocol, through two pipes; standard library only."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import pytest

CANDIDATES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
PATIENCE_S: Final = 60.0
"""A busy machine may be slow; nothing waits longer than it must."""


def find_chromium() -> str:
    """Path of a browser; without one the test skips with the reason, and fails under CI."""
    for name in CANDIDATES:
        path = shutil.which(name)
        if path is not None:
            return path
    reason = f"no browser found; looked for {', '.join(CANDIDATES)}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@dataclass
class Events:
    """What a page did while it was watched."""

    console: list[str] = field(default_factory=list)
    """Errors and warnings of the console, exceptions among them."""
    requests: list[str] = field(default_factory=list)
    """URLs asked for, the page itself left out."""
    violations: list[str] = field(default_factory=list)
    """Reports of the content security policy."""


class Chromium:
    """One browser with one page."""

    def __init__(self) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="kvtrace-chromium-")
        to_browser, self._write_fd = os.pipe()
        self._read_fd, from_browser = os.pipe()
        self._process = self._start(to_browser, from_browser)
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._next_id = 0
        self._session: str | None = None
        self._url = ""
        self.events = Events()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Security", "Audits"):
            self.call(f"{domain}.enable")

    def _start(self, to_browser: int, from_browser: int) -> subprocess.Popen[bytes]:
        """The browser reads commands from its descriptor 3 and writes answers to 4."""
        command = [find_chromium(), *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"]
        shell = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        return subprocess.Popen(
            ["/bin/sh", "-c", shell, "sh", *command],
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the browser and remove its profile."""
        try:
            self.call("Browser.close", page=False)
            self._process.wait(timeout=10)
        except (OSError, TimeoutError, subprocess.TimeoutExpired):
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        os.close(self._write_fd)
        os.close(self._read_fd)
        shutil.rmtree(self._profile.name, ignore_errors=True)
        self._profile.cleanup()

    def call(self, method: str, *, page: bool = True, **params: Any) -> dict[str, Any]:
        """The result of one command; events that arrive meanwhile are kept."""
        self._next_id += 1
        message: dict[str, Any] = {"id": self._next_id, "method": method, "params": params}
        if page and self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write_fd, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self._next_id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read_fd], [], [], deadline - time.monotonic())
            if not ready:
                raise TimeoutError("the browser did not answer")
            piece = os.read(self._read_fd, 1 << 20)
            if not piece:
                raise OSError("the browser has gone")
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer

    def _note(self, event: dict[str, Any]) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.events.console.append(json.dumps(params["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.events.console.append(json.dumps(params["args"])[:500])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.events.console.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent" and params["request"]["url"] != self._url:
            self.events.requests.append(params["request"]["url"][:200])
        elif method == "Audits.issueAdded":
            issue = params["issue"]
            if "ContentSecurityPolicy" in issue["code"]:
                self.events.violations.append(json.dumps(issue)[:500])

    def evaluate(self, expression: str) -> Any:
        """Value of a script expression in the page; promises are awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:500])
        return answer["result"].get("value")

    def open(self, path: Path, *, width: int = 1440, height: int = 900, dark: bool = False) -> None:
        """Show a file and wait until its charts are drawn."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events = Events()
        self._url = path.resolve().as_uri()
        self.call("Page.navigate", url=self._url)
        self.wait_for("document.documentElement?.dataset.ready === 'true'")

    def wait_for(self, condition: str) -> None:
        """Wait, by polling inside the page, until a condition holds."""
        done = self.evaluate(
            "new Promise((resolve) => { const end = Date.now() + 40000;"
            f" const look = () => {{ if ({condition}) resolve(true);"
            " else if (Date.now() > end) resolve(false); else setTimeout(look, 50); }; look(); })"
        )
        if done is not True:
            raise TimeoutError(f"never became true: {condition}; {self.events}")

    def screenshot(self, target: Path, *, whole: bool = False) -> None:
        """A PNG of the window, or of the whole page."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        target.write_bytes(base64.b64decode(answer["data"]))

    def print_pdf(self, target: Path) -> None:
        """The page as it prints."""
        answer = self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        target.write_bytes(base64.b64decode(answer["data"]))
