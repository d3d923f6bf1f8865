"""Epidemic Learning and Morph: clients exchange models with others that change in each round.

each round t:                                                         (Algorithms 1 and 2)
  client i:  w_i = local training of F_i from w_i; sends it to its peers of the round:
             those next to it in a random circle, some drawn at random, or the least similar ones
             w_i = the mean of w_i and of the models that it gets
client i deploys w_i.
"""

from typing import Annotated, Literal

from jaxfl.algorithms import steps
from jaxfl.core.facts import COUNT, Paper, method
from jaxfl.core.messages import Down, Exchange, Outcome, ServerState, Turn, Uploads, Wire
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Task
from jaxfl.graphs.links import EdgeDelay, EdgeLoss, EdgePart, links_of
from jaxfl.kernels import cosine, least_similar, mean_rows, random_circle, random_receivers
from jaxfl.training import data_loss


@method(
    title="Epidemic Learning",
    paper=Paper(
        authors="de Vos, Martijn and Farhadkhani, Sadegh and Guerraoui, Rachid and Kermarrec, "
        "Anne-Marie and Pires, Rafael and Sharma, Rishi",
        title="Epidemic Learning: Boosting Decentralized Learning with Randomized Communication",
        venue="NeurIPS",
        year=2023,
        link="https://arxiv.org/abs/2310.01972",
    ),
    place="Algorithms 1 and 2",
    personal="the whole model",
    sends="its model, to some others",
    defaults="ours",
    offers_mixture=True,
    starts_from_server=False,
    reports_gap=True,
    separating={"degree": 1},
    advice="degree: lower it where clients differ, raise it where they are alike",
)
def epidemic(
    task: Task,
    *,
    peers: Literal["circle", "random", "dissimilar"] = "circle",
    degree: Annotated[int, COUNT] = 2,
    edge_loss: EdgeLoss = 0.0,
    edge_delay: EdgeDelay = 0,
    edge_part: EdgePart = 1.0,
) -> Algorithm:
    """Each client trains its own model and takes the mean with those of others, who change.

    In each round the others are chosen anew. With "circle" the clients stand in a circle of random
    order, and each receives the models of the `degree` clients behind it (EL-Oracle). With "random"
    each client sends its model to `degree` others that it draws, and receives a random number of
    models (EL-Local). With "dissimilar" each client receives the `degree` models whose cosine with
    its own is smallest, as with Morph (Cox, Ioannou and Decouchant, 2026,
    https://arxiv.org/abs/2602.03383), so that it hears of data that it lacks.

    What is sent and received is counted for each model. A client that has not reported is nobody's
    peer, and sends nothing.

    State: memory = the client's model; record = with delays, the client's last models. Evaluations
    tell the `spectral_gap` of the last round's weights (`jaxfl.graphs.measures`). With "circle" the
    weights of more than 2,048 clients are `core.edges.SparseRows` if each has few neighbours.

    Args:
      task: the model and its training.
      peers: how clients find from whom they learn.
      degree: to how many others a client sends ("circle", "random"), and from how many it receives
        ("circle", "dissimilar").
      edge_loss: the probability that a message is lost, drawn for each edge and round; the mean is
        then one of the models that arrived. A number, or the path of a NumPy file (.npy) or an
        array [C, C] (receiver, sender) with one for each edge, as for the two below.
      edge_delay: how many rounds a message takes: from whom it receives in this round, a client
        gets the model that the sender had so many of its rounds ago.
      edge_part: the part of its numbers that a message has, drawn for each edge and round. The
        receiver takes its own number for one that is missing.

    Raises:
      InputError: the conditions of the edges are out of their ranges, or of another number of
        clients.

    Differs: EL-Oracle draws regular graphs in another way. Neighbours take the mean after a round
    of many local steps, where an iteration of the paper has one. Morph's clients learn of others
    and of their models by gossip; here they know the models of the whole cohort, and what they ask
    to learn it is not counted.

    Example:
      >>> _, info = one_round(epidemic(task, degree=1))
      >>> info.weights.shape
      (4, 4)
    """
    fit = task.trainer(data_loss(task.problem))
    start = steps.init_own(task.problem)
    links = links_of(edge_loss, edge_delay, edge_part)

    def init(key: PRNGKey, train: Dataset) -> tuple[Params, ServerState]:
        memory, _ = start(key, train)
        links.check(len(train.mask))
        return memory, ServerState(record=steps.init_past(links, memory))

    def client(key: PRNGKey, memory: Params, down: Down, cohort: Cohort) -> Turn[Params]:
        return steps.train_and_send(fit, key, memory, None, cohort)

    def network_step(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        draw = stream(key, "server")
        who = uploads.ids, uploads.reported
        if peers == "circle":
            neighbours = random_circle(draw, len(uploads.ids), degree, *who)
        elif peers == "random":
            neighbours = random_receivers(draw, len(uploads.ids), degree, *who)
        else:
            neighbours = least_similar(cosine(uploads.received), degree, uploads.reported)
        delivery = steps.deliver(links, key, uploads, neighbours, state.record)
        rows = mean_rows(delivery.network, delivery.arrived)
        return steps.mix_delivered(delivery, rows, state)

    exchanges = (Exchange(client, network_step), Exchange(steps.take_offered(task)))
    return steps.compose(task, Wire(init, exchanges, steps.deploy_memory))
