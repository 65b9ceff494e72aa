"""The cases of `cases_unseen`, judged."""

from tests.incidents import cases_unseen
from tests.incidents.judged import cases_of

test_judged_right = cases_of(cases_unseen)
