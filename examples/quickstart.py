"""Two clients that take 2 and 30 local steps of Adam and end within 0.001 of the minimum of their mean objective.

python examples/quickstart.py
"""

import fedtrue as ft

task = ft.tasks.quadratic(hessians=[[1.0, 30.0], [20.0, 1.0]], minima=[[2.0, 1.0], [-1.0, -2.0]])
method = ft.fedopt(
    client=ft.client.adam(learning_rate=1e-4),
    server=ft.server.sgd(learning_rate=1.0),
    correction="joint",        # "none" | "local" | "joint"
    trace="first_gradient",    # "first_gradient" | "exact" | "paper"
    client_state="restart",    # "restart" | "sync" | "inherit"
    weighting="uniform",       # "examples" | "tokens" | "uniform"; default: the task's
)  # fmt: skip
result = ft.train(task, method, rounds=40_000, local_steps=[2, 30], seed=0)
print(result.params - task.minimiser)
