"""DDP on Muster: a trainer of two ranks, two replicas that get its weights, and a rank that
is killed on the way.

    python examples/torch/ddp.py

Needs torch. On machines with NVIDIA devices the groups use NCCL, else gloo.
"""

import os
import signal
import tempfile
from datetime import timedelta
from pathlib import Path

import muster
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TIMEOUT = timedelta(
    seconds=60
)  # of each collective: a dead rank is not waited for longer
ROWS, WIDTH = 32, 8


def new_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.Tanh(), nn.Linear(32, 1))


def join(env: dict[str, str]) -> dist.ProcessGroup:
    """A group beside the default one, for weights that go from one cluster to another."""
    rank, size = int(env["RANK"]), int(env["WORLD_SIZE"])
    store = dist.TCPStore(
        env["MASTER_ADDR"], int(env["MASTER_PORT"]), size, rank == 0, TIMEOUT
    )
    if torch.cuda.is_available():
        return dist.ProcessGroupNCCL(store, rank, size, TIMEOUT)
    return dist.ProcessGroupGloo(store, rank, size, TIMEOUT)


class Sharing:
    """What both sides of the hand-over do."""

    model: nn.Module
    weights: dist.ProcessGroup

    def join_weights(self, env: dict[str, str]) -> None:
        self.weights = join(env)

    def hand_over(self) -> float:
        """From the trainer's rank 0, which is rank 0 of the group, to all."""
        for parameter in self.model.parameters():
            self.weights.broadcast(parameter.data, 0).wait()
        return float(sum(p.detach().abs().sum() for p in self.model.parameters()))


class Trainer(Sharing):
    """Muster has set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT."""

    def __init__(self, checkpoint: str) -> None:
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, timeout=TIMEOUT)
        device = torch.device("cuda", 0) if backend == "nccl" else torch.device("cpu")
        self.checkpoint = Path(checkpoint)
        self.model = new_model().to(device)
        self.ddp = DistributedDataParallel(self.model)
        self.adam = torch.optim.Adam(self.ddp.parameters(), lr=0.01)
        self.step = 0
        if self.checkpoint.exists():
            state = torch.load(self.checkpoint)
            self.step = state["step"]
            self.model.load_state_dict(state["model"])
            self.adam.load_state_dict(state["adam"])
        self.device = device

    def train(self, steps: int) -> tuple[int, float]:
        """(step, loss) after so many more; rank 0 writes a checkpoint."""
        for _ in range(steps):
            rows = torch.randn(ROWS, WIDTH, device=self.device)
            loss = (self.ddp(rows).squeeze(1) - rows.sum(1)).square().mean()
            self.adam.zero_grad()
            loss.backward()
            self.adam.step()
            self.step += 1
        if dist.get_rank() == 0:
            self._save()
        dist.barrier()
        return self.step, loss.item()

    def _save(self) -> None:
        state = {
            "step": self.step,
            "model": self.model.state_dict(),
            "adam": self.adam.state_dict(),
        }
        torch.save(state, self.checkpoint.with_suffix(".new"))
        self.checkpoint.with_suffix(".new").rename(self.checkpoint)


class Replica(Sharing):
    def __init__(self) -> None:
        self.model = new_model()
        if torch.cuda.is_available():
            self.model.cuda()


def hand_over(trainer: muster.Cluster, replicas: muster.Cluster) -> list[float]:
    """The trainer's weights, in all replicas; their sums as they see them."""
    source = trainer[0:1]
    with muster.collective_group(source, replicas) as group:
        sides = ((source, group.src_envs), (replicas, group.tgt_envs))
        for futures in [
            side.execute_all_async("join_weights", muster.each(envs))
            for side, envs in sides
        ]:
            muster.get(futures)
        sent = source.execute_all_async("hand_over")
        return muster.get(sent + replicas.execute_all_async("hand_over"))


def main() -> None:
    muster.init(preload="torch")
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = str(Path(folder) / "checkpoint.pt")
        trainer = muster.Cluster("trainer", Trainer, world_size=2, args=(checkpoint,))
        replicas = muster.Cluster("replica", Replica, world_size=2)
        print("trained", trainer.execute_all_sync("train", 20)[0][0], "steps")

        os.kill(trainer.pids[1], signal.SIGKILL)
        try:
            trainer.execute_all_sync("train", 1)
        except muster.MusterError as error:  # of the dead rank, or of one that lost it
            print(f"a step failed ({type(error).__name__}): all ranks again")
        trainer.restart()  # the old group cannot go on with one new rank
        step, loss = trainer.execute_all_sync("train", 180)[0]
        print(f"trained {step} steps, loss {loss:.3f}")

        sums = hand_over(trainer, replicas)
        print("replicas have the weights:", len({round(s, 3) for s in sums}) == 1)
    muster.shutdown()


if __name__ == "__main__":
    main()
