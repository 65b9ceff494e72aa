"""The cases of `cases_answers`, judged."""

from tests.incidents import cases_answers
from tests.incidents.judged import cases_of

test_judged_right = cases_of(cases_answers)
