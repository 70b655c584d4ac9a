"""Headless Chromium over the DevTools protocol, through two pipes; standard library only."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
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


def _high_pipe() -> tuple[int, int]:
    """A pipe whose ends are far above 3 and 4, where the browser wants its own."""
    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in ends)
    for end in ends:
        os.close(end)
    return high[0], high[1]


class Chromium:
    """One browser with one page."""

    def __init__(self) -> None:
        self._profile = tempfile.mkdtemp(prefix="kvtrace-chromium-")
        to_browser, self._write_fd = _high_pipe()
        self._read_fd, from_browser = _high_pipe()
        self._pid = self._start(to_browser, from_browser)
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

    def _start(self, to_browser: int, from_browser: int) -> int:
        """Process id; the browser reads commands from descriptor 3 and writes answers to 4.

        It leads a group of its own, so that its helpers end with it.
        """
        command = [find_chromium(), *FLAGS, f"--user-data-dir={self._profile}", "about:blank"]
        null = os.devnull
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, null, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, null, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, null, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, to_browser, 3),
            (os.POSIX_SPAWN_DUP2, from_browser, 4),
        ]
        return os.posix_spawn(command[0], command, os.environ, file_actions=actions, setpgroup=0)

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
        """End the browser, the processes that it started, and remove its profile."""
        deadline = time.monotonic() + 10
        with contextlib.suppress(OSError, TimeoutError):
            self.call("Browser.close", page=False)
            while True:  # until it closes its end
                self._receive(deadline)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._write_fd)
        os.close(self._read_fd)
        shutil.rmtree(self._profile, ignore_errors=True)

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
        self.resize(width=width, height=height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events = Events()
        self._url = path.resolve().as_uri()
        self.call("Page.navigate", url=self._url)
        self.wait_for("document.documentElement?.dataset.ready === 'true'")

    def resize(self, *, width: int, height: int) -> None:
        """Give the window another size."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

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
