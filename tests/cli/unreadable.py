"""A folder that may not be read, whoever runs the tests: root may read all."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def forbid(monkeypatch: pytest.MonkeyPatch, *forbidden: Path) -> None:
    """Opening these, or what lies in them, is refused from now on."""

    def refusing(name: str) -> Callable[..., Any]:
        really: Callable[..., Any] = getattr(os, name)

        def call(path: Any = ".", *more: Any, **options: Any) -> Any:
            asked = Path(os.fsdecode(path)) if isinstance(path, str | bytes | os.PathLike) else None
            if asked is not None and any(each in (asked, *asked.parents) for each in forbidden):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(asked))
            return really(path, *more, **options)

        return call

    for name in ("open", "scandir", "listdir"):
        monkeypatch.setattr(os, name, refusing(name))
