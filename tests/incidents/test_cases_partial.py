"""The cases of `cases_partial`, judged."""

from tests.incidents import cases_partial
from tests.incidents.judged import cases_of

test_judged_right = cases_of(cases_partial)
