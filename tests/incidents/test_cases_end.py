"""The cases of `cases_end`, judged."""

from tests.incidents import cases_end
from tests.incidents.judged import cases_of

test_judged_right = cases_of(cases_end)
