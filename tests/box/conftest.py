import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.box.box import Box


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("box")


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    """A fresh private systemd for the tests of one file."""
    if os.geteuid() != 0:
        pytest.fail("the box needs root; without it run: make test-unit")
    with Box() as booted:
        yield booted
