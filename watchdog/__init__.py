"""A systemd-integrated health watchdog for SGLang servers."""

__version__ = "0.1.0"
