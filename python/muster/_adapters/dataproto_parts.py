"""What DataProto is made of: names, meta information, columns that are put together."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster._adapters.checks import NoSuchKey, WrongValue
from muster._adapters.lazy_column import shared
from muster._data.batch_parts import same_values
from muster._data.torch_arrays import dtype_of, is_tensor


def names_of(keys: Any) -> list[str]:
    if keys is None:
        return []
    if isinstance(keys, str):
        return [keys]
    if not isinstance(keys, (list, tuple, set, frozenset)):
        raise TypeError(f"a name or a list of names is needed: {keys!r}")
    return list(keys)


def copied_meta(meta: dict[str, Any]) -> dict[str, Any]:
    """A deep copy; entries that cannot be copied are shared."""
    try:
        return copy.deepcopy(meta)
    except Exception:
        return {key: _copied(value) for key, value in meta.items()}


def _copied(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:
        return value


def chosen(entries: dict[str, Any], keys: Sequence[str] | None) -> dict[str, Any]:
    if keys is None:
        return dict(entries)
    wanted = names_of(keys)
    return {key: value for key, value in entries.items() if key in wanted}


def as_array(values: Any) -> NDArray[Any]:
    """Of numbers that numpy does not know: as float32."""
    if is_tensor(values):
        bare = values.detach().cpu()
        values = (bare.float() if dtype_of(bare.dtype).names else bare).numpy()
    found: NDArray[Any] = values
    return found


def check_there(what: str, entries: dict[str, Any], keys: list[str]) -> None:
    for key in keys:
        if key not in entries:
            raise NoSuchKey(f"there is no {key!r} in {what}")


def check_same(what: str, mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    for key in mine.keys() & theirs.keys():
        if not same_values(shared(mine[key]), shared(theirs[key])):
            raise WrongValue(f"union: {what} {key!r} is in both, with other values")


def union_tensor_dict(tensor_dict1: Any, tensor_dict2: Any) -> Any:
    """The first with what the second has beside it; what both have must be equal."""
    sizes = tensor_dict1.batch_size, tensor_dict2.batch_size
    if sizes[0] != sizes[1]:
        raise WrongValue(f"union of {sizes[0][0]} and {sizes[1][0]} rows")
    first, second = (dict(d.items()) for d in (tensor_dict1, tensor_dict2))
    check_same("tensor", first, second)
    for name in second.keys() - first.keys():
        tensor_dict1[name] = second[name]
    return tensor_dict1


def union_numpy_dict(
    tensor_dict1: dict[str, NDArray[Any]], tensor_dict2: dict[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """The same of dicts of arrays."""
    check_same("array", tensor_dict1, tensor_dict2)
    tensor_dict1.update(tensor_dict2)
    return tensor_dict1


def put_together(
    what: str, tables: list[dict[str, Any]], put: Callable[..., Any], memo: Any
) -> dict[str, Any]:
    """Of tables with the same columns, those of all, one after another."""
    out: dict[str, Any] = {}
    for table in tables[1:]:
        if table.keys() != tables[0].keys():
            odd = sorted(table.keys() ^ tables[0].keys())
            raise WrongValue(f"concat: only some have the columns {odd}")
    for name in tables[0] if tables else ():
        cells = [table[name] for table in tables]
        try:
            out[name] = cells[0] if len(cells) == 1 else put(cells, memo)
        except (TypeError, ValueError, RuntimeError) as e:
            raise WrongValue(f"concat: {what} {name!r}: {e}") from None
    return out


def index_loader(
    count: int, size: int, seed: int | None, options: dict[str, Any]
) -> Callable[[], Iterator[list[int]]]:
    """Each call is an epoch: the indexes of its parts."""
    if size < 1:
        raise WrongValue(f"mini_batch_size: at least 1 is needed: {size}")
    if options and importlib.util.find_spec("torch") is not None:
        import torch  # type: ignore[import-not-found]
        from torch.utils.data import DataLoader  # type: ignore[import-not-found]

        generator = None if seed is None else torch.Generator().manual_seed(seed)
        loader = DataLoader(
            range(count), size, collate_fn=list, generator=generator, **options
        )
        return lambda: iter(loader)
    random = np.random.default_rng(seed) if options.pop("shuffle", False) else None
    whole = options.pop("drop_last", False)
    if options:
        raise TypeError(f"dataloader_kwargs: torch is needed for {sorted(options)}")

    def epoch() -> Iterator[list[int]]:
        order = range(count) if random is None else random.permutation(count).tolist()
        for i in range(0, count - size + 1 if whole else count, size):
            yield list(order[i : i + size])

    return epoch
