import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.box.box import Box
from watchdog import keyring

# A busy machine must not fail a property.
settings.register_profile("project", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("project")

pytest.register_assert_rewrite("tests.incidents.judged")

BOX_TESTS = Path(__file__).parent / "box"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what boots a private systemd, so that `make test-unit` leaves it out."""
    for item in items:
        if BOX_TESTS in item.path.parents or "box" in getattr(item, "fixturenames", ()):
            item.add_marker("box")


def pytest_runtest_teardown() -> None:
    """What a test has the program know of keys ends with it."""
    keyring.forget()


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    """A fresh private systemd for the tests of one file."""
    if os.geteuid() != 0:
        pytest.fail("the box needs root; without it run: make test-unit")
    with Box() as booted:
        yield booted
