"""Profiles of models: which one fits a server, and that each of them can be used."""

import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from watchdog import config
from watchdog.config import profile
from watchdog.config.profile import GENERIC, Profile, ProfileError, for_server, misfit, named, names

PROJECT = Path(__file__).parent.parent
FOLDER = PROJECT / "config" / "profiles"


@pytest.mark.parametrize(
    ("args", "name", "by"),
    [
        ({"model_path": "/models/Kimi-K2.5", "reasoning_parser": "kimi_k2"}, "kimi-k2", "--reasoning-parser kimi_k2"),
        ({"model_path": "/models/Kimi-K2-Thinking"}, "kimi-k2", "--model-path /models/Kimi-K2-Thinking"),
        ({"model_path": "moonshotai/Kimi-K2-Instruct-0905", "tool_call_parser": "kimi_k2"}, "kimi-k2-instruct", "--model-path"),
        ({"model_path": "/w", "served_model_name": "qwen3-next"}, "qwen3", "the name qwen3-next"),
        ({"model_path": "/w", "reasoning_parser": "qwen3-thinking"}, "qwen3", "--reasoning-parser qwen3-thinking"),
        ({"model_path": "/w", "tool_call_parser": "qwen3_coder"}, "qwen3", "--tool-call-parser qwen3_coder"),
        ({"model_path": "deepseek-ai/DeepSeek-V3.1", "tool_call_parser": "deepseekv31"}, "deepseek-v3", "--model-path"),
        ({"model_path": "deepseek-ai/DeepSeek-R1-0528"}, "deepseek-r1", "--model-path"),
        ({"model_path": "/hub/models--zai-org--GLM-4.6/snapshots/0a1b"}, "glm", "--model-path"),
        ({"model_path": "zai-org/GLM-5-FP8"}, "glm", "--model-path"),
        ({"model_path": "openai/gpt-oss-120b"}, "gpt-oss", "--model-path"),
        ({"model_path": "meta-llama/Llama-3.1-8B-Instruct", "tool_call_parser": "llama3"}, GENERIC, ""),
        ({"model_path": "THUDM/glm-4-9b-chat"}, GENERIC, ""),
        ({}, GENERIC, ""),
        ({"model_path": None, "reasoning_parser": None}, GENERIC, ""),
    ],
)
def test_which_profile_fits(args: dict[str, object], name: str, by: str) -> None:
    found = for_server(args)
    assert found.name == name and found.by.startswith(by) and found.profile == named(name)


def test_what_tells_most_comes_first() -> None:
    distilled = "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B"
    assert for_server({"model_path": distilled}).name == GENERIC, "two names in one: nobody knows"
    assert for_server({"model_path": distilled, "reasoning_parser": "deepseek-r1"}).name == "deepseek-r1"
    assert for_server({"model_path": distilled, "reasoning_parser": "qwen3"}).name == "qwen3"
    assert for_server({}, "Kimi-K2.5").name == "kimi-k2", "the served name, where no argument is known"


def test_parsers_that_do_not_go_with_the_model() -> None:
    def said(**args: str) -> str | None:
        return misfit(for_server(args), args)

    assert said(model_path="/m/Kimi-K2.5", reasoning_parser="kimi_k2") is None
    assert said(model_path="/m/Kimi-K2.5", reasoning_parser="auto") is None
    assert "--reasoning-parser kimi is not made for Kimi-K2, kimi_k2 is" in (
        said(model_path="/m/Kimi-K2.5", reasoning_parser="kimi") or ""
    )
    assert "without --reasoning-parser glm45" in (said(model_path="/m/GLM-4.6") or "")
    assert said(model_path="/m/DeepSeek-V3-0324") is None, "it answers at once"
    assert said(model_path="/m/llama", reasoning_parser="minimax") is None


def test_the_shipped_profiles() -> None:
    assert (
        set(names())
        == {path.stem for path in FOLDER.glob("*.toml")}
        >= {
            *("kimi-k2", "qwen3", "deepseek-v3", "deepseek-r1", "glm", "gpt-oss", GENERIC),
        }
    )
    keys = {field.name for field in msgspec.structs.fields(Profile)} - {"prompt"}
    for name in names():
        written = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
        assert set(written) == keys, f"{name} leaves nothing to guess"
        assert name == GENERIC or all(re.match("SGLang (0\\.|documentation)", source) for source in written["sources"])


def test_the_table_of_profiles_says_what_the_files_say() -> None:
    text = (PROJECT / "docs/canary.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| `")]
    told = {row[0].strip("`"): row[1:] for row in rows if len(row) == 6}
    assert set(told) == set(names())
    for name, (_, by, thinks, answer, without) in told.items():
        known = named(name)
        assert thinks == known.thinks and answer == known.expects
        assert set(known.reasoning_parsers) <= {words.split()[-1] for words in re.findall(r"`([^`]+)`", by)}
        assert [word.split(" = ")[0] for word in re.findall(r"`([^`]+)`", without)] == list(known.brief_kwargs)


def test_each_profile_can_be_configured() -> None:
    for name in (*names(), str(FOLDER / "qwen3.toml")):
        whole = config.parse({"servers": [{"name": "a", "unit": "a.service", "probe": {"profile": name}}]})
        assert whole.servers[0].probe.profile == name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("title = ", "is no valid TOML"),
        ('thinks = "never"', "is no profile (object missing required field `title`)"),
        ('title = "a"\nthinks = "never"\ntokens = 3', "is no profile (object contains unknown field `tokens`)"),
        ('title = "a"\nthinks = "never"\nmax_tokens = 999', "is no profile (expected `int` <= 256"),
        ('title = "a"\nthinks = "maybe"', "is no profile (invalid enum value"),
        ('title = "a"\nthinks = "never"\nmodels = ["("]', "has no valid regular expression in models"),
        ("#" * 70_000, "is larger than 64 KiB"),
    ],
)
def test_a_damaged_profile_is_told(tmp_path: Path, text: str, said: str) -> None:
    own = tmp_path / "own.toml"
    own.write_text(text)
    with pytest.raises(ProfileError, match=re.escape(said)):
        named(str(own))
    with pytest.raises(config.ConfigError, match=r"probe\.profile.*mend it: docs/canary\.md"):
        config.parse({"probe": {"profile": str(own)}, "servers": [{"name": "a", "unit": "a.service"}]})


def test_a_profile_of_ones_own_is_read_anew(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('title = "a"\nthinks = "never"')
    assert named(str(own)).max_tokens == 16
    own.write_text('title = "a"\nthinks = "never"\nmax_tokens = 8')
    assert named(str(own)).max_tokens == 8
    with pytest.raises(ProfileError, match="is no absolute path"):
        named("./own.toml")


def test_they_are_found_in_an_installed_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "other.toml").write_text('title = "a"\nthinks = "never"')
    monkeypatch.setattr(profile, "__file__", str(tmp_path / "profile.py"))
    names.cache_clear()
    try:
        assert names() == ("other",)
    finally:
        names.cache_clear()
    wheel = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"]["config/profiles"] == "watchdog/config/profiles"
