"""Files that are read again once they have changed, before a client's next connection."""

from __future__ import annotations

import os
import stat

Seen = list[tuple[int, ...]]


class Reread:
    """Whether any of these files has changed. To look is one question to the system for each, and reads none."""

    def __init__(self, names: list[str]) -> None:
        # The program may change its working directory.
        self.names = [os.path.abspath(name) for name in names]
        self._seen = self._look()

    def changed(self) -> Seen | None:
        """What is to be noted (:meth:`note`) once the files are read; none where they are as they were. None also where
        one is gone, or is no plain file: nobody may write into a pipe any more."""
        found = self._look()
        return None if self._seen is None or found == self._seen else found

    def note(self, seen: Seen) -> None:
        """The files were read as they were then, for better or worse."""
        self._seen = seen

    def _look(self) -> Seen | None:
        try:
            found = [os.stat(name) for name in self.names]
        except OSError:
            return None
        if not all(stat.S_ISREG(one.st_mode) for one in found):
            return None
        return [(one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns) for one in found]
