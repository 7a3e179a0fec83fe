"""What each kind of inference server is asked, and what its answers mean.

All speak of token ids, because a request is resumed from its tokens. Names of sampling
options are OpenAI's and vLLM's (`temperature`, `top_p`, `top_k`, `min_p`, `stop`, `seed`,
...); each kind translates those that it calls differently, and sends others as they are.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from muster.generate.http_client import ServerError, shown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from muster.generate.http_client import HttpClient

CONTROL_S = 30.0  # for a request that controls the server
# Servers have defaults of their own, or take the model's. Log-probabilities are only those
# of the samples if nothing is cut off.
NEUTRAL = {"temperature": 1.0, "top_p": 1.0, "min_p": 0.0}


@dataclass
class Part:
    """What an event adds to an answer. finish: why the server ended it, or None."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: str | None = None  # "stop", "length" or "abort"


def bad(event: Any, why: str) -> ServerError:
    return ServerError(f"{why}: {shown(json.dumps(event))}")


def numbers(event: Any, values: Any, what: str) -> list[Any]:
    if not isinstance(values, list):
        raise bad(event, f"no list of {what} in an event")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise bad(event, f"a list of {what} with something else in it")
    return values


class Server:
    """What is common to all kinds. One object belongs to one engine."""

    kind = ""
    generate_path = "/v1/completions"
    pause_modes: tuple[str, ...] = ()  # of the server itself
    renamed: Mapping[str, str] = {}  # options that this kind calls differently
    no_top_k = -1
    has_update = False  # of the weights, while it runs
    piece = 32  # tokens, where streams cannot be had

    def __init__(self, client: HttpClient, model: str | None) -> None:
        self.client = client
        self.model = model

    def sampling(self, options: Mapping[str, Any]) -> dict[str, Any]:
        options = NEUTRAL | {"top_k": self.no_top_k} | dict(options)
        return {self.renamed.get(name, name): options[name] for name in options}

    def body(self, rid: str, tokens: list[int], new: int, options: Any) -> Any:
        raise NotImplementedError

    def reader(self) -> Callable[[dict[str, Any]], Part]:
        """Takes the events of one stream to Parts, in order."""
        raise NotImplementedError

    async def parts(
        self, rid: str, tokens: list[int], new: int, options: Any
    ) -> AsyncIterator[Part]:
        """Of one answer, as they come; the last one has its finish. Closed: aborted."""
        body = self.body(rid, tokens, new, options)
        answer = await self.client.open("POST", self.generate_path, body)
        read, finish = self.reader(), None
        try:
            async for data in answer.events():
                if data == "[DONE]":
                    break
                try:
                    part = read(parsed(data))
                except ServerError as error:
                    text = f"{answer.what}: {error}"
                    raise type(error)(text, error.status, error.body) from None
                except (TypeError, AttributeError, LookupError, ValueError):
                    text = f"an event of an unknown form: {shown(data)}"
                    raise answer.error(text, data) from None
                if finish is not None and part.tokens:
                    raise answer.error("tokens behind the end of an answer")
                finish = finish or part.finish
                if part.tokens or part.finish:
                    yield part
        finally:
            answer.close()
        if finish is None:
            raise answer.cut("the stream ended before the answer did")

    async def tokenize(self, text: str) -> list[int]:
        body = self._model() | {"prompt": text}
        answer = await self._post("/tokenize", body)
        tokens = answer.get("tokens") if isinstance(answer, dict) else None
        return numbers(answer, tokens, "tokens")

    async def detokenize(self, tokens: list[int]) -> str:
        body = self._model() | {"tokens": tokens}
        answer = await self._post("/detokenize", body)
        for name in ("text", "prompt", "content"):  # SGLang's, vLLM's, llama.cpp's
            if isinstance(answer, dict) and isinstance(answer.get(name), str):
                return str(answer[name])
        raise bad(answer, "no text of the tokens")

    def _model(self) -> dict[str, Any]:
        return {} if self.model is None else {"model": self.model}

    async def abort(self, rid: str) -> None:
        """Beside closing the connection, which is all that some kinds have."""

    async def pause(self, mode: str) -> None:
        raise NotImplementedError

    async def resume(self) -> None:
        raise NotImplementedError

    async def health(self) -> None:
        await self.client.ask("GET", "/health", timeout=CONTROL_S)

    async def load(self) -> dict[str, int]:
        raise NotImplementedError(
            f"a server of kind {self.kind} does not tell its load"
        )

    async def update_weights(self, path: str, version: int) -> None:
        raise NotImplementedError

    async def _post(
        self, path: str, body: Any = None, timeout: float = CONTROL_S
    ) -> Any:
        return await self.client.ask("POST", path, body, timeout=timeout)


class OpenAI(Server):
    """POST /v1/completions. Token ids are an extension, found in one of three places."""

    kind = "openai"

    async def health(self) -> None:
        await self.client.ask("GET", "/v1/models", timeout=CONTROL_S)

    def sampling(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Without what OpenAI does not have."""
        known = {"temperature": 1.0, "top_p": 1.0} | dict(options)
        return known

    def body(self, rid: str, tokens: list[int], new: int, options: Any) -> Any:
        return self.sampling(options) | {
            "model": self.model,
            "prompt": tokens,
            "max_tokens": new,
            "stream": True,
            "logprobs": 1,
            "return_token_ids": True,
        }

    def reader(self) -> Callable[[dict[str, Any]], Part]:
        return _read_completion


class Vllm(OpenAI):
    """As OpenAI's. A closed connection aborts a request, so nothing else is asked."""

    kind = "vllm"
    pause_modes = ("abort", "wait", "keep")
    has_update = True

    sampling = Server.sampling

    async def pause(self, mode: str) -> None:
        # "wait" ends when the last request does
        await self._post(f"/pause?mode={mode}", timeout=self.client.silence_s)

    async def resume(self) -> None:
        await self._post("/resume")

    async def health(self) -> None:
        await Server.health(self)

    async def load(self) -> dict[str, int]:
        text = await self.client.ask("GET", "/metrics", timeout=CONTROL_S)
        return {
            "running": metric(text, "vllm:num_requests_running"),
            "waiting": metric(text, "vllm:num_requests_waiting"),
        }

    async def update_weights(self, path: str, version: int) -> None:
        reload = {"method": "reload_weights", "kwargs": {"weights_path": path}}
        seconds = self.client.silence_s
        await self._post("/collective_rpc", reload, timeout=seconds)
        await self._post("/reset_prefix_cache")
        await self._post("/update_weight_version", {"new_version": str(version)})


class SGLang(Server):
    kind = "sglang"
    generate_path = "/generate"
    pause_modes = ("abort", "keep", "retract")
    has_update = True
    renamed = {"seed": "sampling_seed", "min_tokens": "min_new_tokens"}

    def body(self, rid: str, tokens: list[int], new: int, options: Any) -> Any:
        return {
            "input_ids": tokens,
            "rid": rid,
            "sampling_params": self.sampling(options) | {"max_new_tokens": new},
            "stream": True,
            "return_logprob": True,
        }

    def reader(self) -> Callable[[dict[str, Any]], Part]:
        return _SGLangStream().read

    async def abort(self, rid: str) -> None:
        await self._post("/abort_request", {"rid": rid})

    async def pause(self, mode: str) -> None:
        names = {"keep": "in_place"}
        await self._post("/pause_generation", {"mode": names.get(mode, mode)})

    async def resume(self) -> None:
        await self._post("/continue_generation", {})

    async def load(self) -> dict[str, int]:
        answer = await self.client.ask("GET", "/v1/loads", timeout=CONTROL_S)
        try:
            loads = answer["loads"]
            return {
                "running": sum(int(one["num_running_reqs"]) for one in loads),
                "waiting": sum(int(one["num_waiting_reqs"]) for one in loads),
            }
        except (TypeError, KeyError, ValueError):
            raise bad(answer, "not the load of a server") from None

    async def update_weights(self, path: str, version: int) -> None:
        body = {"model_path": path, "weight_version": str(version), "flush_cache": True}
        seconds = self.client.silence_s
        done = await self._post("/update_weights_from_disk", body, timeout=seconds)
        if not isinstance(done, dict) or done.get("success") is not True:
            raise bad(done, "the server has not taken the weights")


class LlamaCpp(Server):
    """POST /completion, a piece of some tokens at a time.

    Its streams leave out tokens that end within a character; answers that are no streams
    have all of them. An answer that is no stream does not end when its connection does, so
    pieces are short: an aborted request decodes for at most one of them.
    """

    kind = "llama.cpp"
    generate_path = "/completion"
    renamed = {"repetition_penalty": "repeat_penalty"}
    no_top_k = 0

    def body(self, rid: str, tokens: list[int], new: int, options: Any) -> Any:
        if "stop_token_ids" in options:
            raise ValueError("sampling: llama.cpp has no stop_token_ids; use stop")
        return self.sampling(options) | {
            "prompt": tokens,
            "n_predict": new,
            "stream": False,
            "return_tokens": True,
            "n_probs": 1,
            "cache_prompt": True,
        }

    async def parts(
        self, rid: str, tokens: list[int], new: int, options: Any
    ) -> AsyncIterator[Part]:
        tokens, seed = list(tokens), options.get("seed")
        while True:
            count = min(new, self.piece)
            part = await self._piece(self.body(rid, tokens, count, options), count)
            tokens += part.tokens
            new -= len(part.tokens)
            if part.finish == "length" and new > 0 and part.tokens:
                part.finish = None
            yield part
            if part.finish is not None:
                return
            if seed is not None:  # else each piece would draw the same numbers
                seed += 1
                options = dict(options) | {"seed": seed}

    async def _piece(self, body: Any, count: int) -> Part:
        answer = await self.client.ask("POST", self.generate_path, body)
        if not isinstance(answer, dict):
            raise bad(answer, "an answer that is no object")
        tokens = numbers(answer, answer.get("tokens"), "tokens")
        if len(tokens) > count:
            raise bad(answer, f"{len(tokens)} tokens, and {count} were asked for")
        ends = {"eos": "stop", "word": "stop", "limit": "length"}
        finish = ends.get(str(answer.get("stop_type")))
        if finish is None:
            raise bad(answer, "an answer that ended for an unknown reason")
        return Part(tokens, _aligned(answer, tokens), finish)

    async def tokenize(self, text: str) -> list[int]:
        body = {"content": text, "add_special": True, "parse_special": True}
        answer = await self._post("/tokenize", body)
        tokens = answer.get("tokens") if isinstance(answer, dict) else None
        return numbers(answer, tokens, "tokens")

    async def load(self) -> dict[str, int]:
        slots = await self.client.ask("GET", "/slots", timeout=CONTROL_S)
        if not isinstance(slots, list):
            raise bad(slots, "not a list of slots")
        busy = sum(bool(one.get("is_processing")) for one in slots)
        return {"running": busy, "slots": len(slots)}


def _aligned(answer: Any, tokens: list[int]) -> list[float]:
    """Log-probabilities of the tokens; NaN where there is none: within a character."""
    found = answer.get("completion_probabilities")
    if not isinstance(found, list) or len(found) > len(tokens):
        raise bad(answer, "no list of log-probabilities for the tokens")
    values, at = [], 0
    for token in tokens:
        one = found[at] if at < len(found) else {}
        if isinstance(one, dict) and one.get("id") == token:
            values.append(one.get("logprob"))
            at += 1
        else:
            values.append(math.nan)
    if at != len(found):
        raise bad(answer, "log-probabilities that are not those of the tokens")
    return numbers(answer, values, "log-probabilities")


KINDS: dict[str, type[Server]] = {
    one.kind: one for one in (OpenAI, SGLang, Vllm, LlamaCpp)
}
OWNERS = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama.cpp"}


async def find_server(
    client: HttpClient, kind: str | None, model: str | None
) -> Server:
    """Its kind and model, by what it says of its models, unless they are given."""
    if kind is None or (model is None and issubclass(KINDS[kind], OpenAI)):
        answer = await client.ask("GET", "/v1/models", timeout=CONTROL_S)
        try:
            first = answer["data"][0]
            found = OWNERS.get(first.get("owned_by", ""), "openai")
            kind, model = kind or found, model or str(first["id"])
        except (TypeError, KeyError, IndexError, AttributeError):
            raise bad(answer, "not a list of models") from None
    return KINDS[kind](client, model)


def metric(text: Any, name: str) -> int:
    """The sum of a metric over its labels, in Prometheus' format."""
    found = [
        float(line.split()[-1])
        for line in str(text).splitlines()
        if line.startswith((name + "{", name + " "))
    ]
    if not found:
        raise ServerError(f"the server's metrics have no {name}")
    return int(sum(found))


# ---- events of streams ------------------------------------------------------------------


def parsed(data: str) -> dict[str, Any]:
    """An event's JSON; what the server says of an error in it is raised."""
    try:
        event = json.loads(data)
    except ValueError:
        raise ServerError(f"an event that is not JSON: {shown(data)}") from None
    if not isinstance(event, dict):
        raise bad(event, "an event that is no object")
    if error := event.get("error"):
        status = error.get("code") if isinstance(error, dict) else None
        text = error.get("message") if isinstance(error, dict) else None
        why = f"the server says: {shown(str(text or error))}"
        raise ServerError(why, status if isinstance(status, int) else 0, data)
    return event


def _finish(event: Any, name: Any) -> str | None:
    if name is None or name in ("stop", "length", "abort"):
        return name and str(name)
    raise bad(event, f"an answer that ended with {name!r}")


def _read_completion(event: dict[str, Any]) -> Part:
    choices = event.get("choices")
    if choices == []:  # an event with the usage alone
        return Part()
    if not isinstance(choices, list) or not isinstance(choices[0], dict):
        raise bad(event, "an event without choices")
    choice = choices[0]
    finish = _finish(event, choice.get("finish_reason"))
    logprobs = choice.get("logprobs") or {}
    if "content" in logprobs:  # llama.cpp's
        content = logprobs["content"] or []
        tokens: Any = [one.get("id") for one in content]
        values = [one.get("logprob") for one in content]
    else:
        tokens = choice.get("token_ids")
        values = logprobs.get("token_logprobs") or []
        if tokens is None:
            tokens = _named_ids(logprobs.get("tokens") or [])
    if tokens is None or (not tokens and choice.get("text")):
        raise bad(
            event,
            "the server gives no token ids (token_ids of a choice, id of a "
            "log-probability, or tokens that are named token_id:N), without which a "
            "request cannot be resumed",
        )
    numbers(event, tokens, "token ids")
    numbers(event, values, "log-probabilities")
    if len(tokens) != len(values):
        raise bad(event, f"{len(tokens)} tokens and {len(values)} log-probabilities")
    return Part(tokens, values, finish)


def _named_ids(names: list[Any]) -> list[int] | None:
    """Of vLLM's --return-tokens-as-token-ids."""
    ids = [str(name).removeprefix("token_id:") for name in names]
    if not all(one.isdecimal() and one != n for one, n in zip(ids, names, strict=True)):
        return None
    return [int(one) for one in ids]


class _SGLangStream:
    """Events repeat all tokens so far, or with --incremental-streaming-output none."""

    def __init__(self) -> None:
        self.count = 0

    def read(self, event: dict[str, Any]) -> Part:
        meta = event.get("meta_info")
        if not isinstance(meta, dict):
            raise bad(event, "an event without meta_info")
        tokens = numbers(event, event.get("output_ids"), "output_ids")
        total = meta.get("completion_tokens")
        if total == len(tokens):
            tokens = tokens[self.count :]
        elif total != self.count + len(tokens):
            raise bad(event, f"{total} tokens in all, after {self.count}, in an event")
        pairs = (meta.get("output_token_logprobs") or [])[-len(tokens) or None :]
        if [pair[1] for pair in pairs if len(pair) > 1] != tokens and tokens:
            raise bad(event, "log-probabilities that are not those of the tokens")
        self.count += len(tokens)
        reason = meta.get("finish_reason")
        finish = reason.get("type") if isinstance(reason, dict) else reason
        values = [pair[0] for pair in pairs] if tokens else []
        return Part(tokens, numbers(event, values, "logprobs"), _finish(event, finish))
