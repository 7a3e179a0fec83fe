"""Engines for test_generate*.py: the next token is a function of what is there before it, so
that an answer that moved between replicas can be compared with one that did not."""

import asyncio
import os
import time

from muster.generate import RequestRefused

END = 0  # a token


def next_token(context: list[int], salt: int) -> int:
    state = 1469598103934665603 ^ salt
    for token in context[-8:]:
        state = (state ^ (token + 1)) * 1099511628211 % 2**64
    state = (state ^ len(context)) * 1099511628211 % 2**64
    return 1 + (state >> 20) % 50_000


def answer(prompt: list[int], seq: int, length: int) -> list[int]:
    """All that sample `seq` of this prompt should be."""
    context = list(prompt)
    for _ in range(length):
        context.append(next_token(context, seq))
    return context[len(prompt) :]


class Engine:
    """sampling: "length" (tokens until it ends by itself), "pace" (seconds for each chunk),
    "chunk" (tokens of one), and what is to go wrong: "die", "raise", "refuse", "abort",
    "hang", "hang_seq", "linger" (at
    the first attempt its stream does not end behind its answer). "waits": seconds in which it
    says only that it is there. "hold": after so many tokens the first attempt waits until
    `release`, or new weights, come: a request that is held runs, however slow the machine is.
    """

    def __init__(self) -> None:
        self.version = 0
        self.running: set[str] = set()
        self.aborted: list[str] = []
        self.log: list[tuple[str, int, int, int]] = []
        self.go = asyncio.Event()
        self.go.set()
        self.released = asyncio.Event()
        self.held: set[str] = set()  # that were ever

    async def _hold(self, request, context):
        made = len(context) - len(request["prompt"])
        if request["attempt"] == 1 and made == (request["sampling"] or {}).get("hold"):
            self.held.add(request["rid"])
            await self.released.wait()

    async def release(self):
        """What is held now goes on."""
        self.released.set()
        self.released = asyncio.Event()

    async def generate(self, request):
        rid, sampling = request["rid"], request["sampling"] or {}
        assert rid not in self.running, "decoded twice at once"
        self.running.add(rid)
        kept = len(request["tokens"])
        self.log.append((rid, request["attempt"], kept, request["version"]))
        try:
            async for chunk in self._decode(request, sampling):
                yield chunk
        finally:
            self.running.discard(rid)

    async def _decode(self, request, sampling):
        context = list(request["prompt"]) + list(request["tokens"])
        begun = len(context)
        whole = len(request["prompt"]) + sampling.get("length", 10)
        last = min(whole, begun + request["max_new_tokens"])
        for _ in range(int(sampling.get("waits", 0) / 0.1)):
            await asyncio.sleep(0.1)
            yield {"tokens": []}
        if sampling.get("abort"):
            yield {"tokens": [], "finish_reason": "abort"}
            return
        if sampling.get("die") == request["seq"]:
            os.kill(os.getpid(), 9)
        while len(context) < last:
            await self._hold(request, context)
            await self.go.wait()
            if (
                sampling.get("hang") == request["attempt"]
                or sampling.get("hang_seq") == request["seq"]
            ):
                await asyncio.sleep(3600)
            if sampling.get("refuse") is not None:
                raise RequestRefused(sampling["refuse"])
            if sampling.get("raise") is not None:
                raise ValueError(sampling["raise"])
            tokens = []
            while len(context) < last and len(tokens) < sampling.get("chunk", 1):
                tokens.append(next_token(context, request["seq"]))
                context.append(tokens[-1])
            await asyncio.sleep(sampling.get("pace", 0))
            yield {
                "tokens": tokens,
                "logprobs": [-float(t) for t in tokens],
                **({"version": self.version} if sampling.get("versions") else {}),
                **({"finish_reason": "stop"} if len(context) == whole else {}),
            }
        if sampling.get("linger") and request["attempt"] == 1:
            await asyncio.sleep(3600)
        if len(context) == whole:
            yield {"tokens": [], "finish_reason": "stop"}

    async def abort(self, rid):
        self.aborted.append(rid)

    async def set_weights(self, version):
        self.version = version
        await self.release()
        return len(self.running)

    async def seen(self):
        return {
            "running": sorted(self.running),
            "aborted": self.aborted,
            "held": sorted(self.held),
            "log": self.log,
            "version": self.version,
            "pid": os.getpid(),
            "stands": not self.go.is_set(),
        }


class PausableEngine(Engine):
    async def pause(self):
        self.go.clear()

    async def resume(self):
        self.go.set()


class RefusingEngine(PausableEngine):
    """Its pauses fail."""

    async def pause(self):
        raise RuntimeError("cannot stand still")


class HesitatingEngine(PausableEngine):
    """So many of its resumes fail."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    async def resume(self):
        if self.times > 0:
            self.times -= 1
            raise RuntimeError("cannot go on")
        await super().resume()


class SlowPausableEngine(PausableEngine):
    """Its pauses are over when `let_pause` was called."""

    def __init__(self) -> None:
        super().__init__()
        self.may_pause = asyncio.Event()

    async def pause(self):
        self.go.clear()
        await self.may_pause.wait()

    async def let_pause(self):
        self.may_pause.set()


class SilentEngine(Engine):
    """Says no version. `made` has each token's: (rid, place, attempt, version)."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[str, int, int, int]] = []

    async def _decode(self, request, sampling):
        context = list(request["prompt"]) + list(request["tokens"])
        for place in range(len(request["tokens"]), sampling["length"]):
            await self._hold(request, context)
            await self.go.wait()  # from here to the yield nothing else runs
            token = next_token(context, request["seq"])
            context.append(token)
            self.made.append((request["rid"], place, request["attempt"], self.version))
            yield {"tokens": [token], "logprobs": [-float(token)]}
            await asyncio.sleep(sampling["pace"])

    async def get_made(self):
        return self.made


class SilentPausableEngine(SilentEngine, PausableEngine):
    pass


class PlainEngine:
    """One request at a time, without async, and with nothing but generate."""

    def generate(self, request):
        sampling = request["sampling"] or {}
        context = list(request["prompt"]) + list(request["tokens"])
        whole = len(request["prompt"]) + sampling.get("length", 10)
        last = min(whole, len(context) + request["max_new_tokens"])
        while len(context) < last:
            context.append(next_token(context, request["seq"]))
            time.sleep(sampling.get("pace", 0))
            yield {"tokens": [context[-1]]}

    def pid(self):
        return os.getpid()


class WholeEngine:
    """Gives its answer at once, as the result of a call that is no stream."""

    async def generate(self, request):
        length = (request["sampling"] or {}).get("length", 10)
        all_ = answer(request["prompt"], request["seq"], length)
        begun = len(request["tokens"])
        return {
            "tokens": all_[begun : begun + request["max_new_tokens"]],
            "finish_reason": "stop",
        }
