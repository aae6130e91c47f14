"""A page in headless Chromium, driven through a pipe by Chromium's own protocol."""

from __future__ import annotations

import itertools
import json
import os
import select
import shutil
import subprocess
from typing import Any

NAMES = ("google-chrome", "chromium", "chromium-browser")
CHROMIUM = next((path for path in map(shutil.which, NAMES) if path), None)
QUIET = "--disable-background-networking --disable-component-update --disable-sync --no-first-run"
OPTIONS = f"--headless --no-sandbox --disable-gpu --disable-quic {QUIET} --remote-debugging-pipe"
# Seconds. chosen: a start on a busy machine takes 2
PATIENCE = 60.0
VIRTUAL_KEYS = {"ArrowLeft": 37, "ArrowRight": 39}


class Page:
    """`with Page(address, folder) as page`: a tab, and the errors of its console."""

    def __init__(self, address: str, folder: os.PathLike[str]):
        assert CHROMIUM is not None
        theirs, self._out = os.pipe()
        self._in, theirs_too = os.pipe()
        # Chromium reads from descriptor 3 and writes to descriptor 4.
        start = f'exec "$0" "$@" 3<&{theirs} 4>&{theirs_too}'
        command = ["bash", "-c", start, CHROMIUM, *OPTIONS.split(), f"--user-data-dir={folder}"]
        self._process = subprocess.Popen(
            [*command, "about:blank"],
            pass_fds=(theirs, theirs_too),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs)
        os.close(theirs_too)
        self._numbers, self._rest, self._session = itertools.count(1), b"", None
        self.errors: list[str] = []
        self._events: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self._address = address
        self.load()

    def load(self) -> None:
        """Load the page anew, with the values that it begins with."""
        for address in ("about:blank", self._address):
            self._events.clear()
            self.send("Page.navigate", url=address)
            while "Page.loadEventFired" not in self._events:
                self._receive()

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *reason: object) -> None:
        self._process.terminate()
        self._process.wait()
        os.close(self._out)
        os.close(self._in)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert select.select([self._in], [], [], PATIENCE)[0], "Chromium does not answer"
            found = os.read(self._in, 2**16)
            assert found, "Chromium has ended"
            self._rest += found
        first, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(first)
        method, values = message.get("method"), message.get("params", {})
        self._events.append(method)
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(values["exceptionDetails"]))
        if method == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
            self.errors.append(values["entry"]["text"])
        if method == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning"):
            self.errors.append(json.dumps(values["args"]))
        return message

    def send(self, method: str, **values: Any) -> dict[str, Any]:
        """The result of a command of the protocol."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": values}
        if self._session is not None:
            message["sessionId"] = self._session
        text = json.dumps(message).encode() + b"\0"
        while text:
            text = text[os.write(self._out, text) :]
        while (answer := self._receive()).get("id") != number:
            pass
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key: str) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            code = VIRTUAL_KEYS[key]
            self.send(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code
            )

    def write(self, text: str) -> None:
        """Type into the field that has the focus, over what it holds."""
        self.evaluate("document.activeElement.select()")
        self.send("Input.insertText", text=text)
