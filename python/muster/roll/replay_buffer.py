"""ReplayBuffer: which prompts may begin, and which samples make a batch, as ROLL has it.

The rules are src/generate/replay.h; here are the waits and the samples. All of it belongs
to one event loop.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass

from muster._adapters.checks import WrongValue
from muster._core import WAIT_S, Replay
from muster.roll.changes import Changes, deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from muster.roll.protocol import DataProto


@dataclass
class ExperienceItem:
    """One sample. `sampling_start_step` is the step at which its prompt began."""

    prompt_id: int
    domain: str = "default"
    sampling_start_step: int | None = None
    data: DataProto | None = None


class ReplayBuffer:
    """Prompts by number: `poll`, `begin`, then `commit` or `abort`."""

    def __init__(
        self,
        async_generation_ratio: float,
        is_use_additional_prompts: bool,
        max_additional_running_prompts: int,
    ) -> None:
        try:
            self._rules = Replay(
                async_generation_ratio,
                is_use_additional_prompts,
                max_additional_running_prompts,
            )
        except ValueError as e:
            raise WrongValue(str(e)) from None
        self.async_generation_ratio = async_generation_ratio
        self.is_use_additional_prompts = is_use_additional_prompts
        self.max_additional_running_prompts = max_additional_running_prompts
        self.current_step: int | None = None
        self._begun: dict[int, int] = {}  # the step of each prompt that runs
        self._items: dict[int, list[ExperienceItem]] = {}  # of finished prompts
        self._taken: list[ExperienceItem] = []  # of a get_batch that was given up
        self._changes = Changes()
        self._is_shut_down = False

    # ---- counts -----------------------------------------------------------------------

    @property
    def batch_size(self) -> int:
        """The budget: prompts of all steps so far, and those that may run ahead."""
        return self._rules.budget

    @property
    def used_prompts(self) -> int:
        """How many numbers were given out."""
        return self._rules.used

    @property
    def running_prompts(self) -> int:
        return self._rules.running

    @property
    def running_extra_prompts(self) -> int:
        return self._rules.additional

    @property
    def completed_prompts(self) -> int:
        return self._rules.completed

    def info(self) -> str:
        return (
            f"step {self.current_step}: budget {self.batch_size}, used "
            f"{self.used_prompts}, running {self.running_prompts} and "
            f"{self.running_extra_prompts} additional, completed "
            f"{self.completed_prompts}, waiting to be taken {len(self._items)}"
        )

    # ---- prompts ----------------------------------------------------------------------

    def advance_step(self, step: int, batch_size: int) -> None:
        """The next step, which adds `batch_size` prompts to the budget."""
        try:
            self._rules.advance(step, batch_size)
        except ValueError as e:
            raise WrongValue(f"step {step} after {self.current_step}: {e}") from None
        self.current_step = step
        self._changes.tell()

    async def poll(self, timeout: float = WAIT_S) -> int:
        """The number of a new prompt, once there is a place for it. DeadlineExceeded after
        `timeout` seconds, CancelledError after `shutdown`."""
        prompt_id = self._rules.poll()
        try:
            async with deadline(
                timeout, lambda: f"no place for a prompt: {self.info()}"
            ):
                while True:
                    self._check_open()
                    if self._rules.admit(prompt_id):
                        return prompt_id
                    await self._changes.wait()
        except BaseException:
            self.abort(prompt_id)
            raise

    async def begin(self, prompt_id: int, timeout: float = WAIT_S) -> int:
        """Bind a prompt to the current step, or to the next if this one was collected.
        DeadlineExceeded after `timeout` seconds, CancelledError if the prompt was aborted, or
        after `shutdown`."""
        if self.current_step is None:
            raise WrongValue("no step has begun: call advance_step first")
        what = f"prompt {prompt_id} waits for a step, which did not begin"
        async with deadline(timeout, lambda: f"{what}: {self.info()}"):
            return await self._begin(prompt_id)

    async def _begin(self, prompt_id: int) -> int:
        while True:
            try:
                step = self._rules.begin(prompt_id)
            except LookupError as e:
                raise asyncio.CancelledError(str(e)) from None
            except ValueError as e:
                raise WrongValue(f"prompt {prompt_id}: {e}") from None
            if step is not None:
                self._begun[prompt_id] = step
                return step
            self._check_open()
            await self._changes.wait()

    def commit(self, prompt_id: int, result: list[ExperienceItem]) -> None:
        """The samples of a prompt. CancelledError if it was collected meanwhile."""
        step = self._begun.get(prompt_id)
        if step is not None and any(i.sampling_start_step != step for i in result):
            raise WrongValue(
                f"prompt {prompt_id}: began at step {step}, not its samples"
            )
        try:
            is_kept = self._rules.commit(prompt_id, len(result))
        except ValueError as e:
            raise RuntimeError(f"prompt {prompt_id}: {e}") from None
        finally:
            self._changes.tell()
        self._begun.pop(prompt_id, None)
        if not is_kept:
            raise asyncio.CancelledError(f"prompt {prompt_id} was collected")
        self._items[prompt_id] = list(result)

    def abort(self, prompt_id: int) -> None:
        """Give the place back, so that another prompt takes it; again is nothing."""
        self._begun.pop(prompt_id, None)
        self._rules.abort(prompt_id)
        self._changes.tell()

    # ---- batches ----------------------------------------------------------------------

    async def get_batch(
        self, expected_samples: int, progress_bar: Any, timeout: float = WAIT_S
    ) -> list[ExperienceItem]:
        """Samples, those of the oldest step first; more than `expected_samples` if the
        last prompt has more. DeadlineExceeded after `timeout` seconds; what was taken until
        then comes with the next call."""
        what = f"{expected_samples} samples were not there"
        async with deadline(timeout, lambda: f"{what}: {self.info()}"):
            return await self._get_batch(expected_samples, progress_bar)

    async def _get_batch(self, wanted: int, progress_bar: Any) -> list[ExperienceItem]:
        self._begin_batch(wanted)
        is_whole = False
        try:
            while True:
                prompts, is_whole = self._rules.take()
                new = [item for p in prompts for item in self._items.pop(p)]
                self._taken += new
                if new and progress_bar is not None:
                    progress_bar.update(len(new))
                if is_whole:
                    break
                self._check_open()
                await self._changes.wait()
        finally:
            if not is_whole:
                self._rules.unwant()
        taken, self._taken = self._taken, []
        return taken

    def give_back(self, items: list[ExperienceItem]) -> None:
        """What `get_batch` gave comes with the next call."""
        self._taken = items + self._taken

    def _begin_batch(self, wanted: int) -> None:
        if self.current_step is None:
            raise WrongValue("no step has begun: call advance_step first")
        oldest = self.current_step - math.ceil(self.async_generation_ratio)
        self._taken = [i for i in self._taken if (i.sampling_start_step or 0) >= oldest]
        try:
            self._rules.want(max(0, wanted - len(self._taken)))
        except ValueError as e:
            raise WrongValue(str(e)) from None

    def gc(self) -> list[int]:
        """End the steps that no later batch may have samples of. The prompts that ran, for
        the caller to cancel."""
        if self.current_step is None:
            return []
        aborted, dropped = self._rules.gc()
        for prompt_id in aborted:
            self._begun.pop(prompt_id, None)
        for prompt_id in dropped:
            del self._items[prompt_id]
        self._changes.tell()
        return aborted

    def shutdown(self) -> None:
        """End all waits with CancelledError."""
        self._is_shut_down = True
        self._changes.tell()

    @property
    def is_shut_down(self) -> bool:
        return self._is_shut_down

    def _check_open(self) -> None:
        if self._is_shut_down:
            raise asyncio.CancelledError("the replay buffer was shut down")
