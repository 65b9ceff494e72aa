"""The cases of `cases_late`, judged."""

from tests.incidents import cases_late
from tests.incidents.judged import cases_of

test_judged_right = cases_of(cases_late)
