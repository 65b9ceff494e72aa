"""What is known of one server: folds of observations, by subject. They remember and count; they judge nothing."""

from watchdog.judge.facts.bundle import Facts

__all__ = ["Facts"]
