"""Write the files that are made from the code: docs/configuration.md and config/sglang-watchdog.toml (`make docs`)."""

from pathlib import Path

from watchdog.config import reference

ROOT = Path(__file__).resolve().parent.parent

if __name__ == "__main__":
    (ROOT / "docs/configuration.md").write_text(reference.markdown(), encoding="utf-8")
    (ROOT / "config/sglang-watchdog.toml").write_text(reference.toml(), encoding="utf-8")
