"""pfl-research: FederatedAveraging on SimulatedBackend; with `torchrun`, its multi-process mode."""

import torch
from measure import Run
from models_torch import Classifier, from_torch, tensors
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.internal.ops import pytorch_ops
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel

run = Run(__doc__)
workload = run.workload
torch.set_num_threads(run.threads)
model = Classifier(workload.name)
model.load_weights(workload.weights())
is_first_process = pytorch_ops.distributed.global_rank == 0


class Clock(TrainingProcessCallback):
    """Records the time of every round."""

    def after_central_iteration(self, aggregate_metrics, model_of_pfl, *, central_iteration):
        run.lap()
        if central_iteration == 0 and is_first_process:
            run.keep(from_torch(workload.name, model.state_dict()))
        run.resume()
        return False, Metrics()


users = iter([client for r in range(run.rounds) for client in workload.cohort(r)])  # pfl takes one at a time
data = FederatedDataset(lambda client: Dataset(tensors(workload, client), user_id=str(client)), lambda: next(users))
server = torch.optim.SGD(model.parameters(), lr=1.0)

run.resume()
FederatedAveraging().run(
    NNAlgorithmParams(
        central_num_iterations=run.rounds,
        evaluation_frequency=run.rounds + 1,  # never
        train_cohort_size=workload.size.cohort,
        val_cohort_size=0,
    ),
    SimulatedBackend(data, data, postprocessors=[WeightByDatapoints()]),
    PyTorchModel(model, torch.optim.SGD, server),
    NNTrainHyperParams(
        local_num_epochs=1, local_learning_rate=workload.learning_rate, local_batch_size=workload.batch_size
    ),
    callbacks=[Clock()],
    send_metrics_to_platform=False,
)
if is_first_process:
    run.report("pfl", "torch")
