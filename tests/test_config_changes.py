"""A reload says which keys it has changed, without their values."""

from pathlib import Path

import pytest

from watchdog import config
from watchdog.config.changes import SHOWN, changed, told

BASE = """
[judge]
stall_s = 240

[[servers]]
name = "kimi"
unit = "kimi.service"
"""


def read(folder: Path, text: str) -> config.Config:
    path = folder / "c.toml"
    path.write_text(text)
    return config.load(path)


@pytest.mark.parametrize(
    ("before", "after", "keys"),
    [
        ("", "", []),
        ("stall_s = 240", "stall_s = 300", ["judge.stall_s"]),
        ('name = "kimi"', 'name = "kimi"\nmode = "act"', ["servers.kimi.mode"]),
        ('unit = "kimi.service"', 'unit = "kimi.service"\njudge = { stall_s = 500 }', ["servers.kimi.judge.stall_s"]),
        ('name = "kimi"', 'name = "qwen"', ["servers.kimi (gone)", "servers.qwen (new)"]),
        ("[judge]", "[web]\nenabled = true\n[judge]", ["web.enabled"]),
    ],
)
def test_each_key_is_named_once(tmp_path: Path, before: str, after: str, keys: list[str]) -> None:
    assert changed(read(tmp_path, BASE), read(tmp_path, BASE.replace(before, after))) == keys


def test_no_value_is_told(tmp_path: Path) -> None:
    secret = '[alert]\nwebhook_url = "https://hooks.example.org/secret"\n' + BASE
    assert told(changed(read(tmp_path, BASE), read(tmp_path, secret))) == "changed: alert.webhook_url"


def test_a_phrase_has_an_end() -> None:
    assert told([]) == "nothing has changed"
    assert told([f"k{n}" for n in range(SHOWN + 3)]).endswith(f"k{SHOWN - 1} and 3 more")
