"""The client app of `run_flower.py`. It is a separate module because Ray's workers import it; they cache the data."""

import functools

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from models_torch import Classifier, train_one_client
from workloads import Size, Workload

app = ClientApp()


@functools.cache
def _set_up(name: str, size: Size) -> tuple[Workload, Classifier]:
    torch.set_num_threads(1)  # Ray runs one client per core
    return Workload(name, size), Classifier(name)


@app.train()
def train(message: Message, context: Context) -> Message:
    config = message.content["config"]
    workload, model = _set_up(config["workload"], Size(*config["size"]))
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=workload.learning_rate)
    examples = train_one_client(model, optimizer, workload, config["client"])
    reply = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": examples})}
    return Message(RecordDict(reply), reply_to=message)
