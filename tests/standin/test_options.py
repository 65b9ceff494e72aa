"""The stand-in's command line: what is wrong is one line."""

import pytest

from watchdog.standin import main


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--port", "99999"), "argument --port: '99999' is no port from 0 to 65535; see sglang-watchdog standin --help\n"),
        (("--port", "x"), "argument --port: 'x' is no port from 0 to 65535; see sglang-watchdog standin --help\n"),
        (("--tp-size", "x"), "argument --tp-size/--tp: invalid int value: 'x'; see sglang-watchdog standin --help\n"),
        (("fault",), "the following arguments are required: NAME, KEY=VALUE; see sglang-watchdog standin fault --help\n"),
    ],
)
def test_a_wrong_argument_is_one_line(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f": {said}")
