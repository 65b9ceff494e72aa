"""The cases of `cases_young`, judged."""

from tests.incidents import cases_young
from tests.incidents.judged import cases_of

test_judged_right = cases_of(cases_young)
