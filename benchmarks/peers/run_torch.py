"""The bare PyTorch loop: a lower bound for the time of pfl and Flower in one process."""

import torch
from measure import Run
from models_torch import Classifier, from_torch, train_one_client

run = Run(__doc__)
workload = run.workload
torch.set_num_threads(run.threads)
model = Classifier(workload.name)
model.load_weights(workload.weights())
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.SGD(trained, lr=workload.learning_rate)


def one_round(round_index: int) -> None:
    server = [p.detach().clone() for p in trained]
    sums = [torch.zeros_like(p) for p in trained]
    for client in workload.cohort(round_index):
        examples = train_one_client(model, optimizer, workload, client)
        with torch.no_grad():
            torch._foreach_add_(sums, trained, alpha=examples)
            torch._foreach_copy_(trained, server)
    with torch.no_grad():
        torch._foreach_copy_(trained, torch._foreach_div(sums, float(workload.cohort_examples(round_index))))


run.resume()
for r in range(run.rounds):
    one_round(r)
    run.lap()
    if r == 0:
        run.keep(from_torch(workload.name, model.state_dict()))
    run.resume()
run.report("torch")
