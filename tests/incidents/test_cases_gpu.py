"""The cases of `cases_gpu`, judged."""

from tests.incidents import cases_gpu
from tests.incidents.judged import cases_of

test_judged_right = cases_of(cases_gpu)
