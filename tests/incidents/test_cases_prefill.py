"""The cases of `cases_prefill`, judged."""

from tests.incidents import cases_prefill
from tests.incidents.judged import cases_of

test_judged_right = cases_of(cases_prefill)
