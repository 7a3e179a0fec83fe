"""ActorTrain: GRPO's gradient steps on the model, in torch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from model import Model
from torch import Tensor

CLIP = 0.2  # how far the probability of a token may move in one step


class ActorTrain:
    """model: a GGUF file. folder: where weights are written for the engines."""

    def __init__(self, model: str, folder: str, rate: float) -> None:
        torch.set_num_threads(os.cpu_count() or 1)
        self.folder = Path(folder)
        self.model = Model(model)
        parameters = self.model.parameters()
        self.optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.0)

    def step(self, groups: list[dict[str, Any]]) -> dict[str, float]:
        """One update from groups: prompt, and of each sample tokens, the log-probabilities
        that the engine gave them, and the reward."""
        total = sum(len(tokens) for group in groups for tokens in group["tokens"])
        ratios: list[Tensor] = []
        for group in groups:
            rewards = torch.tensor(group["rewards"])
            gains = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
            loss, ratio = self._loss(group, gains)
            (loss / total).backward()
            ratios.append(ratio)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return {"ratio": float(torch.cat(ratios).mean()), "norm": float(norm)}

    def _loss(self, group: dict[str, Any], gains: Tensor) -> tuple[Tensor, Tensor]:
        prompt, answers = group["prompt"], group["tokens"]
        longest = max(map(len, answers))
        rows = [prompt + one + [0] * (longest - len(one)) for one in answers]
        mask = torch.tensor([[i < len(one) for i in range(longest)] for one in answers])
        new = self.model(torch.tensor(rows), len(prompt))
        old = new.detach().clone()  # where the engine gave none
        for row, values in enumerate(group["logprobs"]):
            known = torch.tensor(values)
            part = old[row, : len(values)]
            old[row, : len(values)] = torch.where(known.isnan(), part, known)
        ratio = (new - old).exp()
        clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
        gain = torch.minimum(ratio * gains[:, None], clipped * gains[:, None])
        return -(gain * mask).sum(), ratio.detach()[mask]

    def save(self, version: int) -> str:
        """The file of these weights; the one before the last goes."""
        path = self.folder / f"weights-{version}.gguf"
        self.model.save(path)
        (self.folder / f"weights-{version - 2}.gguf").unlink(missing_ok=True)
        return str(path)
