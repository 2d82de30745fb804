"""The thread with an event loop that carries the synchronous client's calls out."""

from __future__ import annotations

import _thread
import asyncio
import os
import selectors
import socket
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from .client import Client
from .errors import ClosedError, DistKVError, Fate, UsageError
from .files import cannot_begin, is_out_of_files
from .handed import Handed
from .pool import closed_error

LAST_WORDS = 1.0
"""Seconds until calls are cut off that do not end with their client."""

R = TypeVar("R")


def _new_loop() -> asyncio.AbstractEventLoop:
    """Raises :class:`~distkv_client.errors.UnavailableError` where this program may open no more files."""
    try:
        # As many as a loop has. Where they are not all to be had, asyncio leaves one that is made in part, of which
        # Python complains when it is collected.
        with selectors.DefaultSelector():
            for end in socket.socketpair():
                end.close()
        return asyncio.new_event_loop()
    except OSError as error:
        if is_out_of_files(error):
            raise cannot_begin(error, "no event loop can be made") from None
        raise


class LoopThread:
    """See the module. It keeps no client: one that nobody has any more ends it."""

    def __init__(self) -> None:
        self._loop = _new_loop()
        self._pid = os.getpid()
        self._handed: set[Handed[Any]] = set()
        """What waits for its end. Whoever removes it from here ends it."""
        self._takes_no_more = False
        self._thread = threading.Thread(target=self._run_loop, name="distkv_client", daemon=True)

    @property
    def is_here(self) -> bool:
        """Whether the thread runs in this process, or could."""
        return self._pid == os.getpid() and not sys.is_finalizing()

    def start(self) -> None:
        """Starts the thread, once."""
        begun = _thread.allocate_lock()
        begun.acquire()
        errors: list[BaseException] = []

        def begin() -> None:
            try:
                self._thread.start()
            except BaseException as error:
                errors.append(error)
            finally:
                begun.release()

        # In a thread where no signal's handler raises anything: `start` holds a lock in its midst that the new thread
        # waits for, and that would stay locked. This wait has no midst.
        try:
            _thread.start_new_thread(begin, ())
        except RuntimeError:
            # There may be no more threads. Nobody else closes a loop that no thread runs.
            self._loop.close()
            raise
        begun.acquire()
        if errors:
            self._loop.close()
            raise errors[0]

    def _run_loop(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            # Before what is left is looked at: who hands more over later sees this.
            self._takes_no_more = True
            # What was handed over before the end, and waits still, ends: threads wait for it. What the end of the
            # client has cut off knows best what it leaves in doubt.
            left = asyncio.all_tasks(loop)
            if left:
                _, left = loop.run_until_complete(asyncio.wait(left, timeout=LAST_WORDS))
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            self._takes_no_more = True
            for handed in list(self._handed):
                self._refuse(handed)
            # Here, so that it is done whoever is interrupted.
            loop.close()

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Carries it out in the loop's thread. Interrupted (Ctrl-C), it cancels it.

        The caller may be stopped anywhere by a signal, whose handler may call this, too, or raise. So it holds nothing
        that the loop's thread waits for, or that it would have to wait for itself.
        """
        handed: Handed[R] = Handed(work)
        try:
            self.check_thread()
            self._handed.add(handed)
            # What was begun before the loop ended is ended by its thread.
            if not self._soon(self._begin, handed) or (self._takes_no_more and handed.task is None):
                self._refuse(handed)
        except DistKVError:
            work.close()
            raise
        except BaseException:
            self._soon(self._cancel, handed)
            raise
        try:
            handed.is_over.acquire()
        except BaseException:
            self._soon(self._cancel, handed)
            raise
        if handed.error is None:
            return cast(R, handed.result)
        if isinstance(handed.error, DistKVError):
            # Of this thread, not of the loop's.
            raise handed.error.with_traceback(None) from handed.error.__cause__
        raise handed.error

    def _soon(self, callback: Callable[..., object], *args: object) -> bool:
        """Has the loop call it; false if the loop has ended."""
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            return False
        return True

    def _begin(self, handed: Handed[Any]) -> None:
        """In the loop's thread, as all that follows."""
        if self._takes_no_more or handed not in self._handed:
            self._refuse(handed)
            return
        handed.task = self._loop.create_task(handed.work)
        handed.task.add_done_callback(lambda task: self._end(handed, task))

    def _cancel(self, handed: Handed[Any]) -> None:
        if handed.task is not None:
            handed.task.cancel()
        else:
            self._refuse(handed)

    def _end(self, handed: Handed[Any], task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            # It had begun, whatever it was.
            handed.error = closed_error(1, Fate.UNKNOWN)
        elif (error := task.exception()) is not None:
            handed.error = error
        else:
            handed.result = task.result()
        if self._take(handed):
            handed.is_over.release()

    def _refuse(self, handed: Handed[Any]) -> None:
        """It is not begun; in any thread."""
        if self._take(handed):
            handed.work.close()
            handed.error = closed_error()
            handed.is_over.release()

    def _take(self, handed: Handed[Any]) -> bool:
        """Whether nobody else ends it."""
        try:
            self._handed.remove(handed)
        except KeyError:
            return False
        return True

    def check_thread(self) -> None:
        """Raises :class:`~distkv_client.errors.UsageError` where nothing can be handed over, or waited for."""
        if self._pid != os.getpid() or threading.current_thread() is self._thread:
            raise UsageError("a synchronous client does not survive fork, and cannot be used in its own callbacks")
        if sys.is_finalizing():
            # The loop's thread runs no more.
            raise ClosedError("the program is ending")

    def end(self) -> None:
        """Ends the loop, and waits for the thread. What waits for its end ends."""
        self._soon(self._loop.stop)
        if self._thread.is_alive():
            self._thread.join()

    def abandon(self, client: Client) -> None:
        """Closes a client that nobody has any more, and ends the loop. Waits for nothing: this may be its thread."""

        def close() -> None:
            closing = self._loop.create_task(client.close(grace=0))
            closing.add_done_callback(lambda _: self._loop.stop())

        self._soon(close)
