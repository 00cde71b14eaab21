"""The lock of a state directory: nobody but its holder opens the state file.

Layer: edges. `flock` on `<state>/lock`, which the system releases when the holder dies, however it dies.
The lock file itself is never removed: another process could hold the removed one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import final

from .errors import StateError, StateLocked
from .state_files import private_directory

LOCK_NAME = "lock"


@final
class StateLock:
    """A held lock; made by `acquire`."""

    def __init__(self, handle: int) -> None:
        self._handle: int | None = handle

    @classmethod
    def acquire(cls, directory: Path) -> StateLock:
        """Take the lock of a state directory, which is made when it is missing.

        Raises:
            StateLocked: Another process (or another adapter of this one) holds it.
            StateError: The directory cannot be used.
        """
        private_directory(directory)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            handle = os.open(directory / LOCK_NAME, flags, 0o600)
        except OSError as error:
            raise StateError(LOCK_NAME, f"cannot be opened ({error.strerror})") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = _holder(handle)
            os.close(handle)
            raise StateLocked(LOCK_NAME, f"{holder} uses this state directory; stop it first") from None
        _sign(handle)
        return cls(handle)

    def release(self) -> None:
        """Give the lock back; a second time does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            fcntl.flock(handle, fcntl.LOCK_UN)  # closing is not enough while a child is being started
            os.close(handle)


def _sign(handle: int) -> None:
    with contextlib.suppress(OSError):  # a full disk: the lock holds all the same
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode("ascii"), 0)


def _holder(handle: int) -> str:
    written = os.pread(handle, 20, 0)
    return f"process {int(written)}" if written.isdigit() else "another process"
