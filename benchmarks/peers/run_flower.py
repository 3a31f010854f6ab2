"""Flower: its simulation engine (Ray), FedAvg strategy, PyTorch clients, one client per core at a time."""

import os
import time

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

from flower_client import app as client_app
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from measure import CORES, Run
from models_torch import Classifier, from_torch

run = Run(__doc__)
workload = run.workload
model = Classifier(workload.name)
model.load_weights(workload.weights())
server_app = ServerApp()


class GivenCohorts(FedAvg):
    """FedAvg with given cohorts instead of sampling: node i of the sorted ids is client i."""

    def configure_train(self, server_round, arrays, config, grid):
        while len(nodes := sorted(grid.get_node_ids())) < workload.size.clients:
            time.sleep(0.05)
        common = {"workload": workload.name, "size": list(workload.size)}
        return [
            Message(
                RecordDict({"arrays": arrays, "config": ConfigRecord({**common, "client": client})}),
                dst_node_id=nodes[client],
                message_type=MessageType.TRAIN,
            )
            for client in workload.cohort(server_round - 1)
        ]


def after_round(rounds_done: int, arrays: ArrayRecord) -> None:
    """Flower also calls this before the first round; the start of Ray therefore counts towards the first round."""
    if rounds_done == 0:
        return
    run.lap()
    if rounds_done == 1:
        run.keep(from_torch(workload.name, arrays.to_torch_state_dict()))
    run.resume()


@server_app.main()
def serve(grid, context):
    strategy = GivenCohorts(fraction_evaluate=0.0)
    strategy.start(grid, ArrayRecord(model.state_dict()), num_rounds=run.rounds, evaluate_fn=after_round)


run.resume()
run_simulation(
    server_app,
    client_app,
    workload.size.clients,
    backend_config={
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": CORES, "log_to_driver": False, "include_dashboard": False},
    },
)
run.report("flwr", "ray", "torch")
