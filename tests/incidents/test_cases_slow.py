"""The cases of `cases_slow`, judged."""

from tests.incidents import cases_slow
from tests.incidents.judged import cases_of

test_judged_right = cases_of(cases_slow)
