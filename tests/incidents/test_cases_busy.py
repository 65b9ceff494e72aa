"""The cases of `cases_busy`, judged."""

from tests.incidents import cases_busy
from tests.incidents.judged import cases_of

test_judged_right = cases_of(cases_busy)
