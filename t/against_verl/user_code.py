"""A program as verl's users write it. test_user_code.py runs it as it is, and with its
import lines changed; both must print the same."""

import asyncio
import json
import os
import sys

import numpy as np
import ray
import torch
from tensordict import TensorDict
from verl import DataProto
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import (
    Dispatch,
    Execute,
    make_nd_compute_dataproto_dispatch_fn,
    register,
)
from verl.single_controller.ray import (
    RayClassWithInitArgs,
    RayResourcePool,
    RayWorkerGroup,
    create_colocated_worker_cls,
    create_colocated_worker_cls_fused,
)
from verl.single_controller.ray.base import merge_resource_pool, split_resource_pool

PADDED = {"_verl_auto_padding": True}


def batch(rows, **meta_info):
    tensors = {"x": torch.arange(rows * 3).reshape(rows, 3)}
    others = {"name": np.array([f"row {i}" for i in range(rows)], dtype=object)}
    return DataProto.from_dict(tensors, others, meta_info=meta_info)


class Actor(Worker):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self, tp):
        dp = self.world_size // tp
        self._register_dispatch_collect_info(
            "train", self.rank // tp, self.rank % tp == 0
        )
        self._register_dispatch_collect_info("infer", self.rank % dp, self.rank < dp)
        return self.rank, self.world_size

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def compute(self, data):
        return self._scaled(data)

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO, blocking=False)
    def compute_later(self, data):
        return self._scaled(data)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("train"))
    def train(self, data):
        return self._scaled(data)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("infer"))
    def infer(self, data):
        return self._scaled(data)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("train"))
    def train_dict(self, data):
        return TensorDict({"y": data["x"] + self.rank}, batch_size=len(data))

    @register(dispatch_mode=Dispatch.DP_COMPUTE_METRIC)
    def rows(self, data):
        return len(data)

    @register(dispatch_mode=Dispatch.DP_COMPUTE)
    def add(self, x, y):
        return x + y + self.rank

    @register(dispatch_mode=Dispatch.ALL_TO_ALL)
    def echo(self, *args, **kwargs):
        return self.rank, args, kwargs

    @register(dispatch_mode=Dispatch.ALL_TO_ALL, execute_mode=Execute.RANK_ZERO)
    def first(self, x):
        return self.rank, x

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    def later(self, x):
        return x * self.rank

    def plain(self, x=0):
        return x + self.rank

    def _scaled(self, data):
        name = data.non_tensor_batch["name"]
        ranks = np.array([self.rank] * len(data), dtype=object)
        return DataProto.from_dict(
            {"x": data.batch["x"] * self.scale}, {"name": name, "rank": ranks}
        )


class Critic(Worker):
    def __init__(self, bias=0):
        super().__init__()
        self.bias = bias

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def value(self, data):
        return DataProto.from_dict({"v": data.batch["x"].sum(-1) + self.bias})


class Server(Worker):
    """Asynchronous: as soon as one method is."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    async def generate(self, prompt):
        await asyncio.sleep(0)
        return f"{prompt} {self.rank}"

    @register(dispatch_mode=Dispatch.DP_COMPUTE)
    async def answer(self, prompts):
        return [f"{prompt} {self.rank}" for prompt in prompts]

    def plain(self):
        return self.rank


class Aware(Critic):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def beside(self):
        return self.get_fused_worker_by_name("actor").scale


def shown(value):
    if isinstance(value, DataProto):
        tensors = {k: v.tolist() for k, v in value.batch.items()}
        others = {k: v.tolist() for k, v in value.non_tensor_batch.items()}
        return {**tensors, **others}
    if isinstance(value, TensorDict):
        return {k: v.tolist() for k, v in value.items()}
    return value


def refused(call, *args):
    """Whether it is, whatever the exception."""
    try:
        call(*args)
    except Exception:
        return True
    return False


def one_role(found):
    pool = RayResourcePool(process_on_nodes=[4], use_gpu=False, max_colocate_count=1)
    made = RayClassWithInitArgs(cls=ray.remote(Actor), scale=10)
    group = RayWorkerGroup(resource_pool=pool, ray_cls_with_init=made, name_prefix="a")
    found["world_size"] = group.world_size
    found["init_model"] = group.init_model(2)
    found["compute"] = shown(group.compute(batch(8)))
    found["padded"] = shown(group.compute(batch(6, **PADDED)))
    future = group.compute_later(batch(4))
    found["future"] = shown(future.get())
    found["chain"] = shown(group.compute(group.compute_later(batch(8))))
    found["train"] = shown(group.train(batch(6)))
    found["infer"] = shown(group.infer(batch(6)))
    found["train_dict"] = shown(group.train_dict(TensorDict({"x": torch.arange(4)}, 4)))
    found["rows"] = group.rows(batch(8))
    found["add"] = group.add([1, 2, 3, 4], y=[10, 20, 30, 40])
    found["add refused"] = refused(group.add, [1, 2, 3], [1, 2, 3])
    found["echo each"] = group.echo([1, 2, 3, 4], x=[5, 6, 7, 8])
    found["echo all"] = group.echo([1, 2, 3], x=[5, 6, 7, 8])
    found["first"] = group.first([1, 2, 3, 4])
    found["later"] = ray.get(group.later(3))
    found["all_sync"] = group.execute_all_sync("plain", x=5)
    found["all_async"] = ray.get(group.execute_all_async("plain", [1, 2, 3, 4]))
    found["all"] = ray.get(group.execute_all("plain"))
    found["zero_sync"] = group.execute_rank_zero_sync("plain", 7)
    found["zero"] = ray.get(group.execute_rank_zero("plain", [1, 2, 3, 4][0]))
    found["handle"] = ray.get(group.workers[2].plain.remote(5))
    found["func"] = shown(group.execute_with_func_generator(scaled_by, batch(4)))
    found["func zero"] = group.execute_func_rank_zero(max, 3, 9)
    found["twice refused"] = refused(group.init_model, 2)


def scaled_by(worker, data):
    return DataProto.from_dict({"y": data.batch["x"] * worker.rank})


def two_roles(found):
    pool = RayResourcePool(process_on_nodes=[2], use_gpu=False, max_colocate_count=1)
    roles = {
        "actor": RayClassWithInitArgs(cls=ray.remote(Actor), scale=2),
        "critic": RayClassWithInitArgs(cls=ray.remote(Critic), bias=100),
    }
    group = RayWorkerGroup(pool, create_colocated_worker_cls(roles))
    found["prefixed"] = shown(group.critic_value(batch(4)))
    spawned = group.spawn(prefix_set=roles.keys())
    found["roles"] = sorted(spawned)
    found["spawned init"] = spawned["actor"].init_model(1)
    found["spawned train"] = shown(spawned["actor"].train(batch(4)))
    found["spawned value"] = shown(spawned["critic"].value(batch(2)))

    roles["critic"] = RayClassWithInitArgs(cls=ray.remote(Aware), bias=7)
    fused = RayWorkerGroup(pool_like(pool), create_colocated_worker_cls_fused(roles))
    fused.fuse(roles.keys())
    found["fused value"] = shown(fused.critic.value(batch(2)))
    found["fused beside"] = fused.critic.beside()


def servers(found):
    pool = RayResourcePool([2], use_gpu=False, max_colocate_count=1)
    group = RayWorkerGroup(pool, RayClassWithInitArgs(cls=ray.remote(Server)))
    found["generate"] = ray.get(group.generate("hello"))
    found["answer"] = group.answer([["a", "b"], ["c"]])
    found["sync beside async"] = group.execute_all_sync("plain")


def pool_like(pool):
    return RayResourcePool(pool.store, use_gpu=False, max_colocate_count=1)


def pools(found):
    pool = RayResourcePool([4], use_gpu=False, max_colocate_count=1)
    found["local"] = [pool.local_world_size_list(), pool.local_rank_list()]
    halves = split_resource_pool(pool, split_size=2)
    found["halves"] = [[p.world_size, int(p.start_bundle_index)] for p in halves]
    parts = split_resource_pool(halves[1], split_size=[1, 1])
    found["parts"] = [[p.world_size, int(p.start_bundle_index)] for p in parts]
    found["bad split"] = refused(split_resource_pool, pool, 3)
    made = RayClassWithInitArgs(cls=ray.remote(Actor), scale=1)
    group = RayWorkerGroup(halves[1], made, name_prefix="half")
    found["half"] = group.execute_all_sync("plain")
    found["half names"] = [name.rpartition("_")[2] for name in group.worker_names]
    other = RayResourcePool([2], use_gpu=False, max_colocate_count=1)
    merged = merge_resource_pool(pool_like(other), other)
    found["merged"] = [merged.world_size, merged.store]
    group = RayWorkerGroup(merged, made, name_prefix="merged")
    found["merged ranks"] = group.execute_all_sync("plain")
    again = RayWorkerGroup.from_detached(
        worker_names=group.worker_names,
        worker_handles=group.workers,
        ray_cls_with_init=made,
    )
    found["attached"] = again.add([1, 2, 3, 4], [1, 1, 1, 1])


def main():
    ray.init(**json.loads(os.environ.get("INIT_OPTIONS", "{}")))
    found = {}
    for part in (one_role, two_roles, servers, pools):
        part(found)
    with open(sys.argv[1], "w") as out:
        json.dump(found, out, indent=1)
    ray.shutdown()


if __name__ == "__main__":
    main()
