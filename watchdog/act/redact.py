"""What must not leave the host in an incident bundle: keys and passwords, and what users asked and were answered.

SGLang writes prompts to its log where it runs with --log-requests ("Receive: obj=…", "Finish: obj=…"; utils/request_logger.py,
0.4.6 to 0.5.23, from 0.5.8 also as JSON), and token ids where its watchdog fires ("Scheduler debug info", managers/scheduler.py).
"""

import re
from collections.abc import Mapping
from typing import Any

from watchdog import keyring

GONE = "…"
LINE_CAP = 8192
"""Characters of a line that are looked at; the rest is dropped first."""

# One value: quoted (also where the closing quote was cut off), or a word; what says that nothing is set may stay.
_VALUE = r"""("(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|(?!None\b|null\b|True\b|False\b|true\b|false\b)[^\s,;)}\]"'&]+)"""
_SECRET = (
    r"(?:api[_-]?key|access[_-]key(?:[_-]id)?|private[_-]key|secret[_-]key|secret|password|passwd|passphrase|credentials?"
    r"|(?:hf|hub|auth|access|refresh|id|session|bearer|api)[_-]token)"
)
_NAMED = re.compile(rf"""({_SECRET}['"]?\s{{0,3}}[=:]\s{{0,3}})""" + _VALUE, re.IGNORECASE)
_FLAG = re.compile(rf"(--[\w-]{{0,40}}?{_SECRET}\s{{1,3}}(?!--))" + _VALUE, re.IGNORECASE)
_VARIABLE = re.compile(r"((?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)=)" + _VALUE)
# A search for these is cheaper than the patterns: most lines have none of them.
_NAMES = ("key", "secret", "passw", "passphrase", "credential", "_token", "-token", "token=")
_STARTS = ("hf_", "sk-", "nvapi-", "gh", "glpat-", "xox", "AKIA")
_TEXTS = ("text", "prompt", "content", "messages", "output_str")
_SCHEME = re.compile(r"\b(Bearer|Basic)\s{1,3}[\w.~+/=-]{4,}", re.IGNORECASE)
_KNOWN = re.compile(r"\b(hf_|sk-|nvapi-|gh[pousr]_|glpat-|xox[abprs]-|AKIA)[\w-]{8,}")
_LOGIN = re.compile(r"(://)[^/@\s'\"]+@")
_QUERY = re.compile(r"([?&](?:key|token|sig|signature|auth)=)[^&\s'\"]+", re.IGNORECASE)

_REQUEST = re.compile(r"""((?:Receive|Finish)(?: \w+)?: obj=\w*|"event": ?"request\.\w+")(.*)""", re.DOTALL)
_RID = re.compile(r"""\brid['"]?\s?[=:]\s?['"][\w.-]{1,80}['"]""")
_IDS = re.compile(r"""((?:input|output|token|prompt|fill)_ids\w{0,20}['"]?\s?[=:]\s?)[\[(][^\])]*[\])]?""")
_NUMBERS = re.compile(r"(?:\b\d{1,9}, ?){16,}\d*")
_TEXT = re.compile(
    r"""((?:\btext|prompt|content|\bmessages|input_text|decoded_text|output_str)['"]?\s?[=:]\s?)"""
    r"""("(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|\[.*)"""
)


def secrets(text: str) -> str:
    """Text without the keys that we know, and without what looks like keys, tokens, passwords and the logins of addresses."""
    text = keyring.struck(text)
    small = text.lower()
    named = any(name in small for name in _NAMES)
    if named:  # first, before another pattern takes the flag for a value
        text = _FLAG.sub(rf"\1{GONE}", text)
    if "://" in text and "@" in text:
        text = _LOGIN.sub(rf"\1{GONE}@", text)
    if "bearer" in small or "basic" in small:
        text = _SCHEME.sub(rf"\1 {GONE}", text)
    if any(start in text for start in _STARTS):
        text = _KNOWN.sub(rf"\1{GONE}", text)
    if named:
        text = _QUERY.sub(rf"\1{GONE}", text)
        text = _VARIABLE.sub(rf"\1{GONE}", text)
        text = _NAMED.sub(rf"\1{GONE}", text)
    return text


def prompts(text: str) -> str:
    """Text without what users asked and were answered, and without token ids."""
    if ("obj=" in text or "request." in text) and (request := _REQUEST.search(text)) is not None:
        rid = _RID.search(request[2])
        text = f"{text[: request.end(1)]}{f' {rid[0]}' if rid else ''} [request left out]"
    if "_ids" in text:
        text = _IDS.sub(rf"\1[{GONE}]", text)
    if any(word in text for word in _TEXTS):
        text = _TEXT.sub(rf"\1{GONE}", text)
    return _NUMBERS.sub("[numbers left out]", text) if text.count(",") >= 16 else text


def line(text: str, cap: int = LINE_CAP) -> str:
    """One line of a log, without secrets and prompts, at most `cap` characters."""
    if len(text) > LINE_CAP:
        # The word at the cut goes as well: half a key would not be known for one.
        text = text[:LINE_CAP].rpartition(" ")[0] + " [cut]"
    text = secrets(prompts(text))
    return text if len(text) <= cap else f"{text[: cap - 6]} [cut]"


def block(text: str) -> str:
    """Several lines, each as `line` makes it."""
    return "\n".join(line(each) for each in text.split("\n"))


def value(content: Any) -> Any:
    """The same for a decoded JSON value: each text in it, and what stands under the name of a secret."""
    if isinstance(content, str):
        return line(content)
    if isinstance(content, Mapping):
        return {str(name): GONE if _secret(str(name), each) else value(each) for name, each in content.items()}
    if isinstance(content, list | tuple):
        return [value(each) for each in content]
    return content


def _secret(name: str, content: Any) -> bool:
    return isinstance(content, str) and content != "" and _NAMED.search(f"{name}=x") is not None
