"""Clients in PyTorch, which know nothing of jaxfl: they get arrays, and send arrays back."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.datasets import load_digits

app = ClientApp()


def network():
    """Two layers; the server knows their names and shapes only."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))


def examples(client):
    """The digits 0 to 4 of clients 0 and 1, the digits 5 to 9 of clients 2 and 3."""
    x, y = load_digits(return_X_y=True)
    mine = (y // 5 == client // 2).nonzero()[0][client % 2 :: 20]
    return torch.tensor(x[mine] / 16, dtype=torch.float32), torch.tensor(y[mine])


def received(message):
    """The model that a message holds."""
    model = network()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    return model


@app.train()
def train(message, context):
    """Local training, and the trained model."""
    x, y = examples(int(context.node_config["partition-id"]))
    model = received(message)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(10):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    metrics = MetricRecord({"num-examples": len(y), "loss": loss.item()})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)


@app.evaluate()
def evaluate(message, context):
    """The accuracy of the model that the client would deploy."""
    x, y = examples(int(context.node_config["partition-id"]))
    with torch.no_grad():
        accuracy = (received(message)(x).argmax(dim=1) == y).float().mean().item()
    metrics = MetricRecord({"num-examples": len(y), "test": accuracy})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


@app.query()
def query(message, context):
    """Which client this node is, so that it always gets its own last layer."""
    client = ConfigRecord({"client": int(context.node_config["partition-id"])})
    return Message(RecordDict({"jaxfl": client}), reply_to=message)
