"""Requests and responses of ROLL's rollouts as DataProtos: made, joined, filtered.

Columns are arrays of numpy, or tensors where the prompts came as tensors.
"""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster._adapters.checks import WrongValue
from muster._data.torch_arrays import is_tensor
from muster.roll.protocol import DataProto

__all__ = [
    "expand_requests",
    "expand_responses",
    "is_report_data_finished",
    "postprocess_output_data",
    "postprocess_paused_data",
    "query_filter",
    "response_filter",
]

ABORT = "abort"  # the finish_reason of a request that was aborted
_BEFORE = (  # what is kept as pre_... of a request
    "output_token_ids",
    "output_logprobs",
    "output_versions",
)
_SAMPLING = (
    "request_id",
    "generation_config",
    "finish_reasons",
    "output_token_ids",
    "eos_token_id",
    "pad_token_id",
    "global_step",
)


# ---- requests -------------------------------------------------------------------------


def request_of(columns: dict[str, Any], meta_info: dict[str, Any]) -> DataProto:
    """What a collect function made: arrays of numbers count as tensors."""
    tensors = {
        name: column
        for name, column in columns.items()
        if is_tensor(column)
        or (isinstance(column, np.ndarray) and column.dtype.kind != "O")
    }
    others = {name: c for name, c in columns.items() if name not in tensors}
    return DataProto.from_dict(tensors, non_tensors=others, meta_info=meta_info)


def expand_requests(
    data: DataProto, num_return_sequences: int, is_num_return_sequences_expand: bool
) -> list[DataProto]:
    """A request for each sample, or one for all of them. `num_return_sequences` of the
    data's generation_config is overwritten."""
    if "generation_config" not in data.meta_info:
        raise WrongValue("meta_info has no generation_config")
    each = 1 if is_num_return_sequences_expand else num_return_sequences
    data.meta_info["generation_config"]["num_return_sequences"] = each
    return [copy.deepcopy(data) for _ in range(num_return_sequences // each)]


def expand_responses(response: DataProto | list[Any] | None) -> list[DataProto]:
    """One for each row, of lists within lists too."""
    if response is None:
        return []
    if isinstance(response, list):
        return [one for part in response for one in expand_responses(part)]
    if len(response) <= 1:
        return [response]
    return [response.slice(i, i + 1) for i in range(len(response))]


def is_report_data_finished(data: DataProto) -> bool:
    """No sample of it was aborted."""
    reasons = data.meta_info.get("finish_reasons") or [ABORT]
    return all(reason != ABORT for reason in reasons)


# ---- responses ------------------------------------------------------------------------


def _array(column: Any) -> NDArray[Any]:
    return np.asarray(column.cpu() if is_tensor(column) else column)


def _like(values: NDArray[Any], column: Any) -> Any:
    """As a tensor if the column is one."""
    if not is_tensor(column):
        return values
    import torch  # type: ignore[import-not-found]

    return torch.from_numpy(np.ascontiguousarray(values))


def _joined(before: list[list[Any]] | None, now: list[list[Any]]) -> list[list[Any]]:
    return [[*a, *b] for a, b in zip(before or [[]] * len(now), now, strict=True)]


def postprocess_paused_data(
    pre_data: DataProto, data: DataProto, sequence_length: int, prompt_length: int
) -> DataProto:
    """The request that goes on where an aborted one has stopped: what was generated is
    behind its prompt, and in pre_output_token_ids of its meta_info."""
    if "output_token_ids" not in data.meta_info:
        return pre_data  # it was aborted before its first token
    if len(data.meta_info["output_token_ids"]) != 1:
        raise WrongValue(
            "a request of several samples cannot go on: set is_num_return_sequences_expand"
        )
    meta = {**pre_data.meta_info, **data.meta_info}
    for name in _BEFORE:
        if (now := meta.pop(name, None)) is not None:
            meta[f"pre_{name}"] = _joined(pre_data.meta_info.get(f"pre_{name}"), now)
    columns = {**pre_data.batch}
    for name in ("input_ids", "attention_mask"):
        columns.setdefault(f"init_{name}", columns[name])
    prompt, mask = columns["init_input_ids"], columns["init_attention_mask"]
    if prompt.shape[1] != prompt_length:
        raise WrongValue(f"a prompt has {prompt.shape[1]} places, not {prompt_length}")
    tokens = np.array(meta["pre_output_token_ids"], _array(prompt).dtype)
    columns["input_ids"] = _like(
        np.concatenate([_array(prompt), tokens], axis=1), prompt
    )
    more = np.ones(tokens.shape, _array(mask).dtype)
    columns["attention_mask"] = _like(
        np.concatenate([_array(mask), more], axis=1), mask
    )
    meta["max_new_tokens"] = sequence_length - prompt_length - tokens.shape[1]
    if meta["max_new_tokens"] <= 0:
        raise WrongValue(
            f"{tokens.shape[1]} tokens behind a prompt of {prompt_length} places leave "
            f"nothing of sequence_length {sequence_length}"
        )
    return DataProto.from_dict(
        columns, non_tensors=dict(pre_data.non_tensor_batch), meta_info=meta
    )


def _padded(rows: list[list[Any]], width: int, fill: Any, dtype: Any) -> NDArray[Any]:
    out = np.full((len(rows), width), fill, dtype)
    for place, row in zip(out, rows, strict=True):
        place[: len(row)] = row[:width]
    return out


def postprocess_output_data(
    request: DataProto, data: DataProto, sequence_length: int
) -> DataProto:
    """A row for each sample: prompt and response in sequence_length places, with masks,
    positions and the engine's log-probabilities."""
    ids = request.batch.get("init_input_ids", request.batch["input_ids"])
    mask = request.batch.get("init_attention_mask", request.batch["attention_mask"])
    tokens = _joined(
        request.meta_info.pop("pre_output_token_ids", None),
        data.meta_info["output_token_ids"],
    )
    columns = _columns(_array(ids), _array(mask), tokens, sequence_length,
                       data.meta_info["pad_token_id"])  # fmt: skip
    columns |= _columns_of_engine(request, data, ids.shape[1], sequence_length)
    repeated = request.repeat(repeat_times=len(tokens))
    meta = {**repeated.meta_info}
    if "metrics" in data.meta_info:
        meta["metrics"] = {**meta.get("metrics", {}), **data.meta_info["metrics"]}
    meta_of_both = {**request.meta_info, **data.meta_info}
    sampling = json.dumps(
        {k: meta_of_both[k] for k in _SAMPLING if meta_of_both.get(k) is not None}
    )
    objects = {name: [*values] for name, values in repeated.non_tensor_batch.items()}
    objects["sampling_params"] = [sampling] * len(tokens)
    return DataProto.from_dict(
        {name: _like(column, ids) for name, column in columns.items()},
        non_tensors=objects,
        meta_info=meta,
    )


def _columns(
    ids: NDArray[Any],
    mask: NDArray[Any],
    tokens: list[list[int]],
    sequence_length: int,
    pad: int,
) -> dict[str, NDArray[Any]]:
    count, width = len(tokens), sequence_length - ids.shape[1]
    prompts, before = (np.repeat(a, count, axis=0) for a in (ids, mask))
    responses = _padded(tokens, width, pad, ids.dtype)
    lengths = np.array([len(row) for row in tokens])[:, None]
    is_response = (np.arange(width)[None] < lengths).astype(mask.dtype)
    attention = np.concatenate([before, is_response], axis=1)
    nothing = np.zeros_like(is_response)
    return {
        "prompts": prompts,
        "responses": responses,
        "input_ids": np.concatenate([prompts, responses], axis=1),
        "attention_mask": attention,
        "position_ids": np.clip(np.cumsum(attention, axis=1) - 1, 0, None),
        "prompt_mask": np.concatenate([before, nothing], axis=1),
        "response_mask": np.concatenate([np.zeros_like(before), is_response], axis=1),
    }


def _columns_of_engine(
    request: DataProto, data: DataProto, prompt_length: int, sequence_length: int
) -> dict[str, NDArray[Any]]:
    """What the engine said of each token: log-probabilities, which begin with that of the
    second place, and versions of the weights (-1: not generated)."""
    columns: dict[str, NDArray[Any]] = {}
    for name, of, skipped, fill, dtype in (
        ("output_logprobs", "infer_logprobs", 1, 0, np.float32),
        ("output_versions", "versions", 0, -1, np.int32),
    ):
        before = request.meta_info.pop(f"pre_{name}", None)
        if (now := data.meta_info.get(name)) is None:
            continue
        rows = _padded(
            _joined(before, now), sequence_length - prompt_length, fill, dtype
        )
        prompt = np.full((len(rows), prompt_length - skipped), fill, dtype)
        columns[of] = np.concatenate([prompt, rows], axis=1)
    return columns


# ---- filters --------------------------------------------------------------------------


def query_filter(data_list: list[DataProto], config: Any) -> bool:
    """Is the prompt kept? By mean or spread of the rewards of its samples, as
    `config.rewards[domain].query_filter_config` says."""
    rewards = [_array(d.batch["response_level_rewards"]) for d in data_list]
    if len(rewards) == 1:
        return True
    values = np.concatenate(rewards).astype(np.float64)
    domain = data_list[0].non_tensor_batch["domain"][0]
    rule = config.rewards[domain].query_filter_config
    if rule.type == "mean_filter":
        low = rule.filter_args.get("threshold_down", -1)
        high = rule.filter_args.get("threshold_up", math.inf)
        return bool(low < values.mean() < high)
    if rule.type == "std_filter":
        return bool(values.std(ddof=1) > rule.filter_args.get("std_threshold", -1))
    return True


def response_filter(data_item: DataProto, config: Any) -> bool:
    """Is the sample kept? Each is, until a loop of one's own says otherwise."""
    return True
