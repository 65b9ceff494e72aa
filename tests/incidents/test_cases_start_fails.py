"""The cases of `cases_start_fails`, judged."""

from tests.incidents import cases_start_fails
from tests.incidents.judged import cases_of

test_judged_right = cases_of(cases_start_fails)
