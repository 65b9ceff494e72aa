"""Write the files that are made from the code: the references in docs/ and the default configuration (`make docs`)."""

from pathlib import Path

from watchdog.config import reference
from watchdog.web import metrics

ROOT = Path(__file__).resolve().parent.parent

if __name__ == "__main__":
    (ROOT / "docs/configuration.md").write_text(reference.markdown(), encoding="utf-8")
    (ROOT / "config/sglang-watchdog.toml").write_text(reference.toml(), encoding="utf-8")
    (ROOT / "docs/metrics.md").write_text(metrics.reference(), encoding="utf-8")
