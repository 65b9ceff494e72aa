"""Log lines of SGLang → what they mean, for all versions from 0.4.6 to 0.5.23.

Wordings and their version ranges were read from the sources of the released wheels (srt/ of each version). The level is not in
SGLang's lines: a line's gravity follows from its wording alone. The word "error" means nothing by itself.
"""

import re
from functools import lru_cache

from watchdog.sglang import loglines_bulk
from watchdog.sglang.loglines_startup import KV_CACHE, STARTUP, TOKENS_TOTAL
from watchdog.sglang.loglines_trouble import BARE, LOGGED, RAISED
from watchdog.sglang.logrules import MESSAGE_LIMIT, Rule, first_match, line_of
from watchdog.sglang.marks import Line, Mark

__all__ = ["Line", "Mark", "classify"]

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_RANKS = re.compile(r"(?:\.\d{3})?(?P<ranks>(?: (?:DP|PP|ATTN_CP|MOE_DP|TP|EP)\d+)*)")
_LEVEL = re.compile(r"(?:INFO|WARNING|ERROR|CRITICAL|DEBUG): +")
_RAISED = re.compile(r"(?P<error>(?:[a-zA-Z_]\w*\.)*[A-Z]\w*)(?P<args>\(.{0,200}?\))?(?::|$)")
_ERROR_TYPE = re.compile(r"(?:Error|Exception|Interrupt|Exit|Timeout|Empty|Full)$")
_HEARTBEAT = re.compile(r"tic start time: (\d\d):(\d\d):(\d\d)\. last_heartbeat time: (\d\d):(\d\d):(\d\d)")
_BAR = re.compile(
    r"(?P<done>\d{1,9})/(?P<total>\d{1,9}) \[(?P<elapsed>[\d:]{1,12})<(?P<eta>[\d:?]{1,12}), *"
    r"(?P<speed>[\d.?]{1,12})(?P<unit>s/it|it/s)"
)
_BARS: dict[str, Mark] = {
    "Loading": Mark.WEIGHTS_PROGRESS,
    "Multi-thread": Mark.WEIGHTS_PROGRESS,
    "Capturing": Mark.GRAPHS_PROGRESS,
    "Compiling": Mark.GRAPHS_PROGRESS,
    "DeepGEMM": Mark.STARTING,
}
_RULES: dict[str, tuple[Rule, ...]] = {word: (*LOGGED.get(word, ()), *STARTUP.get(word, ())) for word in {**LOGGED, **STARTUP}}


def classify(message: str) -> Line | None:
    """What one log line means; None where it means nothing to a watchdog.

    Never raises, and takes time in proportion to the line's length. A line is judged by what stands at its beginning, after the
    prefix `[time ranks]`: text of users that a line quotes further on has no say; with a line break in it, it can have.

    Fields by mark (bytes are bytes, times seconds, ratios 0…1; a value that the line does not print is not there):
        prefill, decode: running, queue, new_seq, new_token, cached_token, tokens, token_usage, gen_throughput, input_throughput,
            accept_len, accept_rate, pending_token.
        access: status; text method, path (without the query).
        weights-progress, graphs-progress: done, total, ratio, per_item_s, elapsed_s, eta_s.
        weights-begin, -end, graphs-begin, -end, memory-pool: elapsed_s, mem_usage_bytes, avail_bytes; text type, what.
        kv-cache: tokens, kv_bytes, or k_bytes and v_bytes, as printed (to 0.01 GiB); text dtype, label.
        host-pool: bytes (to 0.01 GB), tokens (0.5.17+); text label ("kv", "draft", "mamba" …).
        tokens-total: max_total_num_tokens, chunked_prefill_size, max_prefill_tokens, max_running_requests, context_len,
            available_gpu_bytes.
        health-failed: waited_s (how long the check waited), silence_s (age of the last sign of life when it gave up).
        watchdog-fired, watchdog-soft: timeout_s; text name.
        sigterm, draining: remaining.
        child-dead: exit_code (negative: a signal), pid, scheduler_rank; text name.
        host-memory-short: requested_bytes, available_bytes.
        hicache-trouble: tokens, pages, ratio; text cause.
        traceback-end and every other mark that the last line of a traceback gets: text error (the type), message.
    """
    line = loglines_bulk.read_known(message)
    if line is not None:
        return line
    if "\x1b" in message:
        message = _ANSI.sub("", message)
        line = loglines_bulk.read_known(message)
        if line is not None:
            return line
    if message[:1] == "[" and message[5:6] == "-":
        end = message.find("]", 20, 120)
        if end == 20:
            return _logged(message, 22, None)
        if end > 0:
            known, rank = _rank(message[20:end])
            if known:
                return _logged(message, end + 2, rank)
    return _bare(message)


@lru_cache(maxsize=256)
def _rank(text: str) -> tuple[bool, str | None]:
    """Whether `text` is what a prefix can hold after the seconds, and the ranks in it."""
    match = _RANKS.fullmatch(text)
    if match is None:
        return False, None
    return True, match["ranks"].strip() or None


def _logged(message: str, start: int, rank: str | None) -> Line | None:
    """A line that one of SGLang's loggers, or uvicorn's, printed; its own text begins at `start`."""
    for start_of_batch, mark in _BATCHES:
        if message.startswith(start_of_batch, start):
            line = loglines_bulk.read_batch(mark, message, start, rank)
            return first_match(_RULES["Decode"], message[start:], rank) if line is None else line
    level = message.startswith("INFO:", start)
    if level:
        line = loglines_bulk.read_access(message, start)
        if line is not None:
            return line
    body = message[start:]
    if level or body[:6] in _LEVEL_STARTS:
        prefix = _LEVEL.match(body)
        body = body if prefix is None else body[prefix.end() :]
    word, _, _ = body[:80].partition(" ")
    rules = _RULES.get(word)
    if rules is not None:
        line = first_match(rules, body, rank)
        if line is not None:
            return _complete(line, body)
    if body.startswith("server_args="):
        # The arguments can hold keys: only arguments.parse_server_args_line() reads them, and redacts.
        return Line(mark=Mark.ARGS, rank=rank, message="server_args=…")
    if body.startswith("max_total_num_tokens="):
        return first_match((TOKENS_TOTAL,), body, rank)
    if body.startswith("self.cur_batch.batch_size()="):
        return Line(mark=Mark.DUMP, rank=rank, message="self.cur_batch …")
    if "KV Cache " in body[:60]:
        return first_match((KV_CACHE,), body, rank)
    return None


_BATCHES = (("Decode batch", Mark.DECODE), ("Prefill batch", Mark.PREFILL))
_LEVEL_STARTS = frozenset(("WARNIN", "ERROR:", "CRITIC", "DEBUG:"))


def _complete(line: Line, body: str) -> Line:
    """Add what a rule's groups cannot say."""
    if line.mark is Mark.HEALTH_FAILED:
        times = _HEARTBEAT.search(body, 0, MESSAGE_LIMIT)
        if times is not None:
            hours, minutes, seconds, *heartbeat = (int(part) for part in times.groups())
            began = hours * 3600 + minutes * 60 + seconds
            beat = heartbeat[0] * 3600 + heartbeat[1] * 60 + heartbeat[2]
            line.fields["silence_s"] = (began - beat) % 86400 + line.fields.get("waited_s", 0.0)
    elif line.mark is Mark.CHILD_DEAD and body.startswith("Child process"):
        status = int(line.fields.get("exit_code", 0))
        line.fields["exit_code"] = float(-(status & 0x7F) if status & 0x7F else status >> 8)
    return line


def _bare(body: str) -> Line | None:
    """A line without a logger's prefix: progress bars, tracebacks, C++, the interpreter, uvicorn without its configuration."""
    body = body.lstrip("\r")
    word, _, _ = body[:40].partition(" ")
    bar = _BARS.get(word)
    if bar is not None:
        return _progress(bar, body)
    if word in ("INFO:", "ERROR:"):
        return _logged(body, 0, None)
    if word == "Traceback":
        return None
    first = body[:1]
    if first == " ":
        return first_match(BARE, body, None) if body.startswith("  what(): ") else None
    if first == "[":
        if not body.startswith("[rank"):
            return None
        mark, found, _ = body[:20].partition("]: ")
        if found:
            return _raised(body[len(mark) + len(found) :])
    return _raised(body) or first_match(BARE, body, None)


def _progress(mark: Mark, body: str) -> Line | None:
    """A bar of tqdm: journald delivers states that carriage returns part as one entry, and the last one counts."""
    last = body[body.rstrip("\r").rfind("\r") + 1 :][:MESSAGE_LIMIT]
    match = _BAR.search(last)
    if match is None:
        return None
    done, total = float(match["done"]), float(match["total"])
    fields = {"done": done, "total": total}
    if total > 0:
        fields["ratio"] = min(1.0, done / total)
    for name in ("elapsed", "eta"):
        seconds = _clock_seconds(match[name])
        if seconds is not None:
            fields[f"{name}_s"] = seconds
    try:
        speed = float(match["speed"])
        if match["unit"] == "s/it":
            fields["per_item_s"] = speed
        elif speed > 0:
            fields["per_item_s"] = 1 / speed
    except ValueError:
        pass  # "?": tqdm has no speed yet
    return Line(mark=mark, fields=fields, message=last)


def _clock_seconds(text: str) -> float | None:
    """Seconds of "05", "01:23" or "1:02:03"; None for "?"."""
    seconds = 0
    for part in text.split(":"):
        if not part.isdecimal():
            return None
        seconds = seconds * 60 + int(part)
    return float(seconds)


def _raised(body: str) -> Line | None:
    """The last line of a traceback: `package.SomeError: what happened`."""
    match = _RAISED.match(body, 0, 200)
    if match is None or _ERROR_TYPE.search(match["error"]) is None:
        return None
    said = body[match.end() :].lstrip()
    text = {"error": match["error"], "message": said[:MESSAGE_LIMIT]}
    for candidate in RAISED:
        fits = candidate.match(said)
        if fits is not None:
            line = line_of(candidate, fits, body, None)
            line.text.update(text)
            return line
    return Line(mark=Mark.TRACEBACK_END, text=text, message=body[:MESSAGE_LIMIT])
