"""A Flower grid inside this process: it calls the nodes' apps. For tests, and to try an app in a debugger."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

APP_FAILED = 1  # code of an error reply


class LocalGrid(Grid):
    """A `Grid` whose nodes are apps in this process, called one after another.

    Args:
        apps: one `ClientApp` per node, or one for all of them.
        nodes: how many, if there is one app.
        run_config: as in `pyproject.toml`, for all nodes.

    >>> import fedtrue as ft
    >>> task, method = ft.tasks.quadratic(), ft.fedopt(ft.client.adagrad(0.1))
    >>> grid = ft.flower.LocalGrid(ft.flower.client_app(task, method), nodes=len(task.train))
    >>> strategy = ft.flower.Strategy(method, task)
    >>> arrays = strategy.start(grid, num_rounds=2).arrays
    >>> strategy.result.summary["rounds"]
    2
    """

    def __init__(
        self,
        apps: ClientApp | Sequence[ClientApp],
        nodes: int | None = None,
        run_config: Mapping[str, Any] | None = None,
    ):
        apps = [apps] * (nodes or 1) if isinstance(apps, ClientApp) else list(apps)
        self.apps = dict(enumerate(apps, 1))
        self.contexts = {
            node: Context(
                0, node, {"partition-id": node - 1, "num-partitions": len(apps)}, RecordDict(), dict(run_config or {})
            )
            for node in self.apps
        }
        self.offline: set[int] = set()  # nodes that do not reply
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 0, 0, 0

    def set_run(self, run: Any) -> None:
        """There is one run."""

    @property
    def run(self) -> Any:
        """No run of a SuperLink."""
        return None

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """A message to a node."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """The nodes that are online."""
        return [node for node in self.apps if node not in self.offline]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Not needed here: `send_and_receive` calls the apps."""
        raise NotImplementedError("a LocalGrid replies at once: call send_and_receive")

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Not needed here: `send_and_receive` calls the apps."""
        raise NotImplementedError("a LocalGrid replies at once: call send_and_receive")

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """The replies of all nodes that are online; an app that raises replies with an error, as in Flower."""
        return [self._replied(message) for message in messages if message.metadata.dst_node_id not in self.offline]

    def _replied(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        try:
            return self.apps[node](message, self.contexts[node])
        except Exception as error:  # an app may raise anything
            return Message(Error(APP_FAILED, f"{type(error).__name__}: {error}"), reply_to=message)
