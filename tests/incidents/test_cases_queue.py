"""The cases of `cases_queue`, judged."""

from tests.incidents import cases_queue
from tests.incidents.judged import cases_of

test_judged_right = cases_of(cases_queue)
