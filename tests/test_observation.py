"""The vocabulary: what a line of a record may look like."""

import msgspec
import pytest

from watchdog.observation import Answer, Deps, Gpu, Host, Log, Metrics, Observation, Probe, Proc, Procs, decode


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('{"kind":"procs","t":1,"procs":[{"pid":1,"name":null}]}', Procs(t=1.0, procs=[Proc(pid=1)])),
        ('{"kind":"metrics","t":1,"ok":true,"values":{"a":null,"b":1.5}}', Metrics(t=1.0, ok=True, values={"b": 1.5})),
        ('{"kind":"host","t":1,"mem_total":1.5e11,"load1":2.0}', Host(t=1.0, mem_total=150_000_000_000, load1=2.0)),
        ('{"kind":"gpu","t":1,"ok":false,"error":"lost","gpus":null}', Gpu(t=1.0, ok=False, error="lost")),
        ('{"kind":"deps","t":1,"units":{"a":null,"b":"active"}}', Deps(t=1.0, units={"b": "active"})),
        ('{"kind":"log","t":1.5,"message":"x","from":null}', Log(t=1.5, message="x")),
        (
            '{"kind":"probe","t":1,"probe":"chat","outcome":"ok","answer":{"text":"x","tool_calls":null}}',
            Probe(t=1.0, probe="chat", outcome="ok", answer=Answer(text="x")),
        ),
    ],
)
def test_what_could_not_be_read_is_null_and_a_number_is_a_number(written: str, read: Observation) -> None:
    """Others write records too, and JSON knows one sort of numbers; one value that is missing costs no whole line."""
    assert decode(written) == read


@pytest.mark.parametrize(
    "line",
    ['{"kind":"unit","t":1,"main_pid":"9"}', '{"kind":"host","t":1,"mem_total":0.5}', '{"kind":"log","t":null,"message":"x"}'],
)
def test_what_is_of_another_type_is_refused(line: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(line)
