"""A result that was paid for: nothing between the charge and the disk loses it."""

from __future__ import annotations

import contextlib
import signal
import tempfile
import uuid
from pathlib import Path
from types import FrameType
from typing import Any

from jaxdp._core.files import write_atomically

# Signals that end a process and that it can hold. Windows has no signal of a closed terminal.
_HELD = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Held:
    """Ctrl-C and the signals of `kill` and of a closed terminal, which wait while `waits` is true.

    One that came then is `pending`; else they do what they usually do.
    """

    def __init__(self) -> None:
        self.waits, self.pending, self._usual = False, False, dict[int, Any]()

    def __enter__(self) -> Held:
        with contextlib.suppress(ValueError):  # another thread than the main one has no signals
            for number in _HELD:
                if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                    self._usual[number] = signal.signal(number, self._caught)
        return self

    def __exit__(self, *error: object) -> None:
        self._release()

    def _caught(self, number: int, frame: FrameType | None) -> None:
        if self.waits:
            self.pending = True
            return
        self._release()
        signal.raise_signal(number)

    def _release(self) -> None:
        for number, usual in self._usual.items():
            signal.signal(number, usual)


def rescued(text: str) -> str:
    """Place of the text of a result that cannot be printed: a new file for its owner alone."""
    for folder in (Path.cwd(), Path(tempfile.gettempdir())):
        path = folder / f"jaxdp-release-{uuid.uuid4().hex[:12]}.json"
        with contextlib.suppress(OSError):
            write_atomically(path, text, mode=0o600, replaces=False)
            return f"in {path}"
    return f"here: {text}"
