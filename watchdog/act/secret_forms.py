"""The forms in which keys, tokens, passwords and logins stand in text, and how each is struck.

A line of a server's log passes here, up to some hundred of them a second, and nearly every one has nothing to strike: a search
for a few words decides what is looked for at all. Every pattern is bounded, so that no text takes more than linear time.
"""

import re

from watchdog.observation import STRUCK

# Between a name and its value: quotes (escaped where JSON stands in JSON), colours, an encoded = or :.
_QUOTES = r"""[\\'"]{0,8}(?:%2[27])?"""
_COLOUR = r"(?:\x1b\[[\d;]{0,12}m){0,2}"
_IS = rf"{_QUOTES}{_COLOUR}\s{{0,3}}(?:[=:]|%3[ad]){_COLOUR}\s{{0,3}}"
# One value: quoted (also where the closing quote was cut off, and within an escaped text), or a word.
_QUOTED = r"""(?:"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|(?P<q>\\{1,7}["'])(?:(?!(?<!\\)(?P=q)).)*|%2[27][^\s&%]*)"""
# What says that nothing is set may stay.
_NOTHING = r"(?!(?:None|null|True|False)\b)"
_VALUE = rf"""(?:{_QUOTED}|{_NOTHING}[^\s,;)}}\]"'&\\]+)"""
# What no word and no number looks like: letters and digits in one long run.
_RANDOM = r"(?=[\w+/-]{0,80}\d)(?=[\w+/-]{0,80}[A-Za-z])[\w+/-]{12,}[\w.~+/=-]*"
_NUMBER = r"[-+]?\d[\d.,]*[a-z%]?(?![\w.])"

_SECRET = (
    r"(?:api[ _-]?key|access[_-]key(?:[_-]id)?|private[_-]key|secret[_-]key|secret|password|passwd|passphrase|credentials?"
    r"|(?:hf|hub|auth|access|refresh|id|session|bearer|api|security|private|client|github|gitlab|vault)[_-]token)"
)
_FLAGS = re.DOTALL | re.IGNORECASE
_NAMED = re.compile(rf"({_SECRET}{_IS}){_VALUE}", _FLAGS)
_FLAG = re.compile(
    rf"((?<!-)--[\w-]{{0,40}}?{_SECRET}{_QUOTES}[\s,\0]{{1,4}})(?!{_QUOTES}--|(?:to|is|or|and|for|in)\s){_VALUE}", _FLAGS
)
# All-capitals names are variables; what is no variable may be a number ("KEY: 5") or a word of prose.
_VARIABLE = re.compile(rf"((?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PWD|CREDENTIALS?)=){_COLOUR}(?!/){_VALUE}", re.DOTALL)
_VARIABLE_TOLD = re.compile(rf"((?<![a-z])(?:KEY|TOKEN):\s{{1,3}}){_RANDOM}")
# Names that are ambiguous: a "token" is mostly a piece of text, and a "pwd" may be a folder.
_TOKEN = re.compile(rf"((?<![\w#-])token{_QUOTES}{_COLOUR}(?:=|%3d){_COLOUR})(?!{_QUOTES}{_NUMBER}){_VALUE}", _FLAGS)
_TOKEN_KEYED = re.compile(rf"""((?<![\w#-])\\{{0,7}}["']token\\{{0,7}}["']\s?:\s?)(?=\\{{0,7}}["']){_VALUE}""", _FLAGS)
_PASSED = re.compile(rf"((?<![^\W_])pwd{_IS})(?!{_QUOTES}/){_VALUE}", _FLAGS)
_LIKELY = re.compile(
    rf"((?:token|\bsig|\bsignature|\bauth)(?:{_IS}|\s{{1,3}}(?:is|was)?\s{{0,2}}){_QUOTES}){_RANDOM}", re.IGNORECASE
)
_TOLD = re.compile(rf"(\bapi key(?: [a-z]{{2,12}}){{0,2}}:? {_QUOTES}){_RANDOM}", re.IGNORECASE)
# Headers. What follows the name is the secret up to the quote that ends it, or for those of several parts up to the end.
_HEADER = re.compile(
    r"(\b(?:proxy-)?authorization[\\'\"]{0,8}\s{0,3}(?:[:=,]|%3a)\s{0,3}[\\'\"]{0,8})"
    r"(?:(?:digest|aws4-hmac-sha256|signature|oauth|hawk)\s.*|(?:[\w-]{1,20}\s{1,3})?[^\s'\"\\]+)",
    _FLAGS,
)
_COOKIE = re.compile(r"(\b(?:set-)?cookie[\\'\"]{0,8}\s{0,3}:\s{0,3}[\\'\"]{0,8})(?=[^\s=]{1,100}=)[^'\"\\\n]+", re.IGNORECASE)
_SCHEME = re.compile(r"\b(Bearer:?|Basic(?-i:(?!\s{1,3}[A-Z]?[a-z]+\b)))\s{1,3}(?!token\b)[\w.~+/=-]{4,}", re.IGNORECASE)
_KNOWN = re.compile(
    r"(?:\b(hf_(?=[A-Za-z0-9]{16})|[sr]k-|[sr]k_live_|nvapi-|gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|xapp-|AKIA|ASIA|AIza"
    r"|npm_|pypi-)[\w-]{8,}|\b(eyJ)[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?|(bot\d{5,}:)[\w-]{20,})"
)
_HOOK = re.compile(r"(/services/T\w{1,20}/B\w{1,20}/|/webhooks/\d{1,30}/)[\w-]+")
_LOGIN = re.compile(
    r"""(://)(?:[^/\s'"?#]{1,512}@|[^\s/@'":]{0,128}:(?!\d{1,5}(?:[/?#\s]|$))[^\s'"]{1,512}@)""",
)
_QUERY = re.compile(
    r"([?&;](?:[\w-]{1,30}[_-])?(?:key|token|sig|signature|auth|secret|password|passwd|pwd|credential)(?:=|%3d))[^&\s'\"]+",
    re.IGNORECASE,
)
_PEM = re.compile(r"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----).*?(?=-----END|\Z)", re.DOTALL)

# What decides which patterns are tried. "token" alone says nothing: each batch line has it ("#token: 12, token usage: 0.1").
_NAMES = ("key", "secret", "passw", "passphrase", "credential", "pwd")
_TOKEN_HINT = re.compile(r"token(?:['\"\\=%\x1b]|:? {0,3}(?:(?:is|was) )?['\"]?[\w+/-]{12}|: {0,3}(?:['\"\\]|[\w+/-]*[a-z_+/]))")
_STARTS = (
    *("hf_", "sk-", "rk-", "k_live_", "nvapi-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-"),
    *("xox", "xapp-", "AKIA", "ASIA", "AIza", "npm_", "pypi-", "eyJ", "bot"),
)
_NAME = re.compile(rf"{_SECRET}$|(?:^|[\W_])(?:token|auth|authorization|cookie|pwd|sig|signature)$", re.IGNORECASE)
_FLAG_ALONE = re.compile(rf"--?[\w-]{{0,40}}?(?:{_SECRET}|token|authorization)$", re.IGNORECASE)


def secret_name(name: str) -> bool:
    """Whether what stands under this name is a secret."""
    return _NAME.search(name) is not None


def secret_flag(word: str) -> bool:
    """Whether the next word of a command line is a secret."""
    return word.startswith("-") and _FLAG_ALONE.match(word) is not None


def struck(text: str) -> str:
    """Text without what looks like a key, a token, a password or the login of an address."""
    small = text.lower()
    token = "token" in small and _TOKEN_HINT.search(small) is not None
    named = token or any(name in small for name in _NAMES)
    likely = token or "sig" in small or "auth" in small
    if named:  # first, before another pattern takes the flag for a value
        text = _FLAG.sub(rf"\1{STRUCK}", text)
    if "://" in text:
        text = _addresses(text)
    if "auth" in small:
        text = _HEADER.sub(rf"\1{STRUCK}", text)
    if "cookie" in small:
        text = _COOKIE.sub(rf"\1{STRUCK}", text)
    if "bearer" in small or "basic" in small:
        text = _SCHEME.sub(rf"\1 {STRUCK}", text)
    if any(start in text for start in _STARTS):
        text = _KNOWN.sub(lambda m: f"{m[1] or m[2] or m[3]}{STRUCK}", text)
    if (named or likely) and ("=" in text or "%3" in text):
        text = _QUERY.sub(rf"\1{STRUCK}", text)
    if named:
        text = _names(text)
    if likely:
        text = _LIKELY.sub(rf"\1{STRUCK}", text)
    return text


def _addresses(text: str) -> str:
    if "@" in text:
        text = _LOGIN.sub(rf"\1{STRUCK}@", text)
    return _HOOK.sub(rf"\1{STRUCK}", text) if "/services/" in text or "/webhooks/" in text else text


def _names(text: str) -> str:
    text = _PEM.sub(rf"\1{STRUCK}", text) if "PRIVATE KEY-----" in text else text
    for form in (_VARIABLE, _VARIABLE_TOLD, _NAMED, _TOKEN, _TOKEN_KEYED, _PASSED, _TOLD):
        text = form.sub(rf"\1{STRUCK}", text)
    return text
