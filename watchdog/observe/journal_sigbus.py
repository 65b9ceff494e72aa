"""Keeps the process alive when a journal file is cut short under the reader.

libsystemd reads journal files through memory maps. When a file is truncated while it is mapped (rotated and vacuumed at once, as
`journalctl --rotate --vacuum-time=1s` does; or vacuumed on a file system that cannot punch holes), the next look at it is a
SIGBUS, which ends the process (systemd issues 24320, 33277). journalctl survives it with a signal handler of systemd's shared
library, which puts a page of zeros in the place of what is gone; libsystemd has no such handler. Here we borrow that one.
"""

import ctypes
from functools import cache
from pathlib import Path

LIBRARY = "libsystemd-shared-*.so"
"""The library that systemd's own programs share; its name ends with systemd's version."""

FOLDERS = ("/usr/lib", "/usr/lib64")


@cache
def _library() -> ctypes.CDLL | None:
    """The library with its handler installed; None where it cannot be had."""
    for folder in FOLDERS:
        for path in sorted((*Path(folder).glob(f"systemd/{LIBRARY}"), *Path(folder).glob(f"*/systemd/{LIBRARY}"))):
            try:
                library = ctypes.CDLL(str(path))
                install, pop = library.sigbus_install, library.sigbus_pop
            except (OSError, AttributeError):
                continue
            install.argtypes, install.restype = (), None
            pop.argtypes, pop.restype = (ctypes.POINTER(ctypes.c_void_p),), ctypes.c_int
            install()
            return library
    return None


def guard() -> bool:
    """Install the handler, once for the process; False where it cannot be had. Costs 4 MiB, most of it shared."""
    return _library() is not None


def struck() -> bool:
    """Whether a mapped file was found cut short since the last call: what was read of it may be zeros."""
    library = _library()
    if library is None:
        return False
    found = False
    while library.sigbus_pop(ctypes.byref(ctypes.c_void_p())) == 1:
        found = True
    return found
