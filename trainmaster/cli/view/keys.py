"""Handles signals and keys while a session runs.

The first Ctrl-C asks whether to detach, stop the job, or continue. A second Ctrl-C, SIGTERM and a closed terminal
detach, because that loses nothing. If the user cannot be asked, the first Ctrl-C detaches too.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from trainmaster.cli.view.live import QUESTION, STOPPING, Live
from trainmaster.cli.view.session import Answers

_KEYS = 64


class Keyboard:
    def __init__(self, answers: Answers, live: Live | None, keyboard: TextIO | None) -> None:
        self._answers = answers
        self._live = live
        self._keyboard = keyboard if live is not None and live.can_ask else None
        self._asking = False
        self._go_on: Callable[[], None] | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        handlers: dict[signal.Signals, Callable[[], None]] = {
            signal.SIGINT: self.interrupt,
            signal.SIGTERM: self._answers.detach.set,
            signal.SIGHUP: self._answers.detach.set,
        }
        if self._live is not None:
            handlers[signal.SIGWINCH] = self._live.resize
            handlers[signal.SIGTSTP] = self._suspend
            handlers[signal.SIGCONT] = self._continue
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        if self._keyboard is not None:
            loop.add_reader(self._keyboard.fileno(), self._read)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)
            if self._keyboard is not None:
                loop.remove_reader(self._keyboard.fileno())

    def interrupt(self) -> None:
        if self._asking or self._keyboard is None or self._live is None or self._answers.stop.is_set():
            self._answers.detach.set()
            return
        self._asking = True
        self._live.ask(QUESTION)

    def press(self, key: str) -> None:
        if not self._asking or self._live is None:
            return
        if key in "dD":
            self._answers.detach.set()
        elif key in "sS":
            self._asking = False
            self._live.ask(STOPPING)
            self._answers.stop.set()
        elif key in "cC\x1b":
            self._asking = False
            self._live.ask()

    def _read(self) -> None:
        assert self._keyboard is not None
        try:
            typed = os.read(self._keyboard.fileno(), _KEYS)
        except OSError:
            typed = b""
        if not typed:
            # The terminal is gone; the SIGHUP handler does the rest.
            asyncio.get_running_loop().remove_reader(self._keyboard.fileno())
        for key in typed.decode(errors="replace"):
            self.press(key)

    def _suspend(self) -> None:
        """Ctrl-Z: restores the terminal for the shell."""
        if self._live is not None:
            self._go_on = self._live.pause()
        os.kill(os.getpid(), signal.SIGSTOP)

    def _continue(self) -> None:
        go_on, self._go_on = self._go_on, None
        if go_on is not None:
            go_on()
