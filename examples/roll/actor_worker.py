"""A worker as ROLL's users write it: a class derived from Worker, with registered methods."""

from muster.roll import Dispatch, Worker, register


class ActorWorker(Worker):
    def initialize(self, pipeline_config):
        super().initialize(pipeline_config)
        self.learning_rate = self.worker_config.training_args["learning_rate"]

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE)
    def train_step(self, batch):
        """A pretended step: the loss of each sample, and who has computed it."""
        return [(self.learning_rate * sample, self.worker_name) for sample in batch]
