"""What must not leave the host in an incident bundle: keys and passwords, and what users asked and were answered.

SGLang writes prompts to its log where it runs with --log-requests ("Receive: obj=…", "Finish: obj=…"; utils/request_logger.py,
0.4.6 to 0.5.23, from 0.5.8 also as JSON), and token ids where its watchdog fires ("Scheduler debug info", managers/scheduler.py).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from watchdog import keyring
from watchdog.act import secret_forms
from watchdog.observation import STRUCK

LINE_CAP = 8192
"""Characters of a line that are looked at; the rest is dropped first."""

_TEXTS = ("text", "prompt", "content", "messages", "output_str")

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
    return secret_forms.struck(keyring.struck(text))


def prompts(text: str) -> str:
    """Text without what users asked and were answered, and without token ids."""
    if ("obj=" in text or "request." in text) and (request := _REQUEST.search(text)) is not None:
        rid = _RID.search(request[2])
        text = f"{text[: request.end(1)]}{f' {rid[0]}' if rid else ''} [request left out]"
    if "_ids" in text:
        text = _IDS.sub(rf"\1[{STRUCK}]", text)
    if any(word in text for word in _TEXTS):
        text = _TEXT.sub(rf"\1{STRUCK}", text)
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
        return {str(name): STRUCK if _secret(str(name), each) else value(each) for name, each in content.items()}
    if isinstance(content, list | tuple):
        return _words(content)
    return content


def _words(content: Sequence[Any]) -> list[Any]:
    """A list, which may be a command line: what follows the flag of a secret is one."""
    before = ["", *content]
    return [
        STRUCK if isinstance(flag, str) and isinstance(each, str) and secret_forms.secret_flag(flag) else value(each)
        for flag, each in zip(before, content, strict=False)
    ]


def _secret(name: str, content: Any) -> bool:
    return isinstance(content, str) and content != "" and secret_forms.secret_name(name)
