"""ROLL's Cluster on four described nodes of eight fake devices. Run it as it is:

    python examples/roll/main.py

Between the lines is the example of ROLL's documentation; its import lines are above.
"""

import sys
from pathlib import Path
from types import SimpleNamespace

import muster
from muster.roll import Cluster, ResourceManager, WorkerConfig

sys.path.insert(0, str(Path(__file__).parent))  # where workers find actor_worker
muster.init(num_nodes=4, num_gpus=8)
rlvr_config = SimpleNamespace(
    exp_name="try",
    actor_train=WorkerConfig(
        name="actor_train",
        device_mapping="list(range(0, 32))",
        training_args={"learning_rate": 0.5},
        strategy_args={
            "strategy_name": "megatron_train",
            "strategy_config": {
                "tensor_model_parallel_size": 2,
                "pipeline_model_parallel_size": 2,
            },
        },
        system_envs={"OMP_NUM_THREADS": "1"},
    ),
)
batch = list(range(16))

# ---------------------------------------------------------------------------------------

# 1. Create resource manager for the cluster
resource_manager = ResourceManager(num_gpus_per_node=8, num_nodes=4)

# 2. Create actor training cluster
actor_train = Cluster(
    name="actor_train",
    worker_cls="actor_worker.ActorWorker",
    resource_manager=resource_manager,
    worker_config=rlvr_config.actor_train,
)

# 3. Initialize all workers
actor_train.execute_all_sync("initialize", rlvr_config)

# 4. Execute training step on all workers
results = actor_train.execute_all_sync("train_step", batch)

# ---------------------------------------------------------------------------------------

print(f"{len(results)} ranks, each with all of the batch: {results[31][-1]}")
sizes = f"dp {actor_train.dp_size}, tp {actor_train.tp_size}, pp {actor_train.pp_size}"
shared = actor_train.train_step(batch)
print(f"{sizes}, the batch shared out among dp groups: {shared[-1]}")
print(f"rank 31 has {actor_train.rank2devices[31]}")
muster.shutdown()
