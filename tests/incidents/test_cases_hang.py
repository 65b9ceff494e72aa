"""The cases of `cases_hang`, judged."""

from tests.incidents import cases_hang
from tests.incidents.judged import cases_of

test_judged_right = cases_of(cases_hang)
