"""Requests and bodies of the OpenAI-compatible endpoints, after captures of a real 0.5.23 server."""

import json
import time
from dataclasses import dataclass
from typing import Any

from watchdog.standin.model import END_OF_THINKING
from watchdog.standin.options import Options

Body = dict[str, Any]
DEFAULT_CHAT_TOKENS = 4096


class BadRequestError(Exception):
    """A request that the server does not take; `kind` is the error's type in the answer."""

    def __init__(self, message: str, kind: str = "Bad Request") -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A request for text, from any of the endpoints."""

    prompt: str
    model: str
    wanted: int
    stream: bool
    usage_in_stream: bool
    thinks: bool
    ignore_eos: bool
    rid: str | None
    salt: str
    tells_cache: bool


def error(message: str, kind: str, code: int) -> Body:
    """The body of an error."""
    return {"object": "error", "message": message, "type": kind, "param": None, "code": code}


def read_chat(raw: bytes, options: Options) -> Ask:
    """A chat request.

    Raises:
        BadRequestError: what SGLang answers with 400.
    """
    body = _read(raw)
    messages = body.get("messages")
    if messages is None:
        raise BadRequestError(_validation("missing", "messages", "Field required"))
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise BadRequestError(_validation("list_type", "messages", "Input should be a valid list"))
    prompt = "\n".join(f"{message.get('role')}: {_text(message.get('content'))}" for message in messages)
    template = body.get("chat_template_kwargs")
    thinks = _thinks(options.server["reasoning_parser"], template if isinstance(template, dict) else {})
    return _ask(body, prompt, body.get("max_completion_tokens", body.get("max_tokens")), thinks, DEFAULT_CHAT_TOKENS)


def _thinks(parser: str | None, switches: Body) -> bool:
    """Whether the model reasons first: what switches it, by parser (_get_reasoning_from_request in serving_chat.py, 0.5.9)."""
    if parser is None:
        return False
    if parser == "deepseek-v3":
        return switches.get("thinking") is True
    if parser == "kimi_k2":
        return switches.get("thinking") is not False
    if parser in ("qwen3", "glm45"):
        return switches.get("enable_thinking") is not False
    return True


def read_completion(raw: bytes) -> Ask:
    """A request of /v1/completions.

    Raises:
        BadRequestError: what SGLang answers with 400.
    """
    body = _read(raw)
    if "prompt" not in body:
        raise BadRequestError(_validation("missing", "prompt", "Field required"))
    return _ask(body, _text(body["prompt"]), body.get("max_tokens"), False, 16)


def read_generate(raw: bytes) -> Ask:
    """A request of SGLang's own /generate.

    Raises:
        BadRequestError: what SGLang answers with 400.
    """
    body = _read(raw)
    params = body.get("sampling_params")
    params = params if isinstance(params, dict) else {}
    text = _text(body.get("text")) or " ".join(map(str, body.get("input_ids") or []))
    return _ask({**body, **params}, text, params.get("max_new_tokens"), False, 128)


def _read(raw: bytes) -> Body:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as fault:
        raise BadRequestError(_validation("json_invalid", str(len(raw)), "JSON decode error")) from fault
    if not isinstance(body, dict):
        raise BadRequestError(_validation("model_attributes_type", "body", "Input should be a valid dictionary"))
    return body


def _ask(body: Body, prompt: str, wanted: Any, thinks: bool, default: int) -> Ask:
    if wanted is None:
        wanted = default
    if not isinstance(wanted, int) or isinstance(wanted, bool):
        text = "Input should be a valid integer, unable to parse string as an integer"
        raise BadRequestError(_validation("int_parsing", "max_tokens", text))
    stream_options = body.get("stream_options")
    return Ask(
        prompt=prompt,
        model=str(body.get("model", "default")),
        wanted=max(wanted, 0),
        stream=bool(body.get("stream")),
        usage_in_stream=isinstance(stream_options, dict) and bool(stream_options.get("include_usage")),
        thinks=thinks,
        ignore_eos=bool(body.get("ignore_eos")),
        rid=body["rid"] if isinstance(body.get("rid"), str) else None,
        salt=body["cache_salt"] if isinstance(body.get("cache_salt"), str) else "",
        tells_cache=bool(body.get("return_cached_tokens_details")),
    )


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) if isinstance(part, dict) else str(part) for part in content)
    return ""


def _validation(kind: str, where: str, message: str) -> str:
    return f"1 validation error:\n  {{'type': '{kind}', 'loc': ('body', '{where}'), 'msg': '{message}'}}\n"


class Answer:
    """Text that grows, parted into reasoning and content as the reasoning parser does."""

    def __init__(self, options: Options, ask: Ask, rid: str, kind: str) -> None:
        self._options = options
        self._ask = ask
        self._kind = kind
        self._whole = ""
        self._sent = (0, 0)
        self._created = int(time.time())
        self._rid = rid
        self.usage: Body = {}
        self.sglext: Body = {}
        self.finish_reason: str | None = None

    def add(self, message: Body) -> None:
        """Take what the detokenizer sent."""
        self._whole += message["text"]
        reason = message["finish_reason"]
        self.finish_reason = reason or self.finish_reason
        if self._ask.tells_cache and message["cached"] and self._options.since(0, 5, 9):
            details = {"device": message["cached"] - message["cached_host"], "host": message["cached_host"]}
            self.sglext = {"cached_tokens_details": details}
        cached = message["cached"] if self._options.server["enable_cache_report"] else 0
        thought = len(self.parts()[0].split())
        self.usage = {
            "prompt_tokens": message["prompt"],
            "total_tokens": message["prompt"] + message["generated"],
            "completion_tokens": message["generated"],
            "prompt_tokens_details": {"cached_tokens": cached} if cached else None,
            "reasoning_tokens": thought,
        }
        if self._options.since(0, 5, 23):
            self.usage["completion_tokens_details"] = {"reasoning_tokens": thought} if thought else None

    def empty(self) -> None:
        """Forget the text: the fault "empty"."""
        self._whole = END_OF_THINKING if self._ask.thinks else ""

    def parts(self) -> tuple[str, str]:
        """Reasoning and content so far."""
        if not self._ask.thinks:
            return "", self._whole
        reasoning, _, content = self._whole.partition(END_OF_THINKING)
        return reasoning, content

    def whole(self) -> Body:
        """The body of an answer that is not streamed."""
        reasoning, content = self.parts()
        choice: Body = {"index": 0}
        if self._kind == "chat":
            # A reasoning model that is cut while it thinks: content is null up to 0.5.12, "" since 0.5.13.
            shown = content if content or self._options.since(0, 5, 13) or not reasoning else None
            choice["message"] = {"role": "assistant", "content": shown, "reasoning_content": reasoning or None}
        else:
            choice["text"] = content
        choice |= {"logprobs": None, "finish_reason": self.finish_reason, "matched_stop": None}
        name = {"chat": "chat.completion", "text": "text_completion"}[self._kind]
        body = self._head(name) | {"choices": [choice], "usage": self.usage}
        return body | {"metadata": {"weight_version": "default"}} | ({"sglext": self.sglext} if self.sglext else {})

    def first_chunks(self) -> list[Body]:
        """What opens a stream: for a chat the role, without text."""
        opening: Body = {"reasoning_content": None, "role": "assistant", "content": ""}
        return [self._chunk(opening, None)] if self._kind == "chat" else []

    def chunks(self) -> list[Body]:
        """What is new since the last call, as chunks."""
        found = self.parts()
        new = [text[sent:] for text, sent in zip(found, self._sent, strict=True)]
        self._sent = (len(found[0]), len(found[1]))
        if self._kind == "text":
            return [self._chunk({"text": new[1]}, None)] if new[1] else []
        result = [self._chunk({"reasoning_content": new[0]}, None)] if new[0] else []
        return result + ([self._chunk({"reasoning_content": None, "content": new[1]}, None)] if new[1] else [])

    def last_chunks(self) -> list[Body]:
        """The chunk with the finish reason, and where cached tokens lay and the usage, where they were asked for."""
        delta: Body = {"text": ""} if self._kind == "text" else {"reasoning_content": None}
        result = [self._chunk(delta, self.finish_reason)]
        if self.sglext and self._options.since(0, 5, 12):
            result.append(self._head(self._chunk_name()) | {"choices": [], "sglext": self.sglext})
        if self._ask.usage_in_stream:
            result.append(self._head(self._chunk_name()) | {"choices": [], "usage": self.usage})
        return result

    def _chunk_name(self) -> str:
        return "chat.completion.chunk" if self._kind == "chat" else "text_completion"

    def _head(self, name: str) -> Body:
        return {"id": self._rid, "object": name, "created": self._created, "model": self._ask.model}

    def _chunk(self, delta: Body, finish_reason: str | None) -> Body:
        payload: Body = {"index": 0} | ({"delta": delta} if self._kind == "chat" else delta)
        payload |= {"logprobs": None, "finish_reason": finish_reason, "matched_stop": None}
        return self._head(self._chunk_name()) | {"choices": [payload]}
