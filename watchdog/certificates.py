"""Which certificates of servers are trusted."""

import errno
import ssl
from pathlib import Path

from watchdog import regular

MAX_PEM = 4 << 20
"""A file of certificates is no longer than this, in bytes; those of all public authorities take 250 KB."""


def trusting(ca_file: str) -> ssl.SSLContext:
    """A context that trusts the certificates of a PEM file; with "" those that the system trusts.

    Raises:
        OSError: the file cannot be read, or holds no certificate (ssl.SSLError).
    """
    if not ca_file:
        return ssl.create_default_context()
    # Given as a name, a named pipe would be waited for. Between certificates there may be words in any script.
    pem = regular.read(Path(ca_file), MAX_PEM).decode("ascii", "ignore")
    if not pem:
        raise OSError(errno.EINVAL, "it is empty", ca_file)
    return ssl.create_default_context(cadata=pem)
