"""The options of a run in groups: each field has its type, its range or names, and its help.

The options of the command line and the fields of `config.json` are these fields.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from jaxfl.core.options import NOT_NEGATIVE, POSITIVE, SEED, Names, Range
from jaxfl.data import CONCEPTS, PARTITIONS
from jaxfl.experiment.config.notes import (
    GIVEN,
    INPUT,
    NO_SCORE,
    OF_CLIENTS,
    PATH,
    RESUMABLE,
    Effect,
    Excludes,
    Heading,
    Needs,
)
from jaxfl.simulation.evaluation import After
from jaxfl.simulation.metrics import METRICS, entry_of
from jaxfl.uplink import ATTACKS, DEFENCES, SCALED

# A number typed by mistake would fill the memory before it fails.
MANY = Range(low=1, high=1_000_000)
NAMED_OR_DRAWN = "name the malicious clients, or let them be drawn"
BELOW_ONE = Range(low=0, high=1, high_included=False)
EVERY_CLIENT = Range(0, 1, low_included=False, words="a fraction in (0, 1], 1 for every client")
SKEW = Range(0, low_included=False, words="a positive number, smaller for more skew")
DELTA = Range(0, 1, False, False, words="a number in (0, 1), far below 1 / clients")
PART = Range(0, 1, words="a fraction in [0, 1]")
SOME = Range(0, 1, low_included=False, words="a fraction in (0, 1]")
# Beyond, the times of clients are too far apart to be added.
SPREAD = Range(low=0, high=10)


def _takers(functions: dict[str, Callable], argument: str) -> tuple[str, ...]:
    """The names of the functions that take an argument."""
    return tuple(
        name
        for name, function in functions.items()
        if argument in inspect.signature(function).parameters
    )


COUNTING = _takers(PARTITIONS, "classes_per_client")  # labels, or shards
BY_LABELS = tuple(name for name in COUNTING if name != "shards")
SHARED_OUT = _takers(PARTITIONS, "beta")
NODES = _takers(PARTITIONS, "topology")
WITH_LEAST = _takers(PARTITIONS, "smallest")


@dataclass(frozen=True)
class DataOptions:
    """Which data, and which client holds what."""

    dataset: Annotated[str, Heading("{}", "data", always=True)] = "digits"
    """data set, see `jaxfl list datasets`"""
    data_dir: Annotated[str | None, NO_SCORE, RESUMABLE] = None
    """folder of NAME.npz files; the environment's JAXFL_DATA_DIR if not given"""
    partition: Annotated[str | None, Names("partition", PARTITIONS), Heading("{}", "data")] = None
    """who holds what, see `jaxfl list partitions`; natural where the data come from clients, else
    pathological"""
    classes_per_client: Annotated[
        int,
        MANY,
        Effect(partition=(*COUNTING, None)),
        Heading(
            "{} labels each", behind="partition", always=True, where=Effect(partition=BY_LABELS)
        ),
        Heading(
            "{} shards each", behind="partition", always=True, where=Effect(partition="shards")
        ),
    ] = 2
    """labels a client holds (pathological, unbalanced_pathological, labels), or shards that it
    draws (shards)"""
    beta: Annotated[
        float,
        SKEW,
        Effect(partition=(*SHARED_OUT, None)),
        Heading("beta {}", behind="partition", always=True),
    ] = 0.5
    """Dirichlet concentration (dirichlet, niid_bench_dirichlet, quantity); smaller is a stronger
    skew"""
    topology: Annotated[
        int,
        Range(low=3, high=5),
        Effect(partition=(*NODES, None)),
        Heading("{} nodes", behind="partition", always=True),
    ] = 5
    """nodes of the partition `nodes`: 3, 4 or 5"""
    smallest: Annotated[
        int,
        MANY,
        Effect(partition=(*WITH_LEAST, None)),
        Heading("{} examples or more each", behind="partition"),
    ] = 10
    """fewest examples of a client: owners with fewer are left out (natural), or proportions are
    drawn again (dirichlet, niid_bench_dirichlet, quantity)"""
    clients: Annotated[int | None, MANY, Heading("{} clients", "clients")] = None
    """number of clients; 10, or all of a natural partition"""
    concept: Annotated[str | None, Names("concept", CONCEPTS), Heading("{}", "data")] = None
    """what differs between clients, see `jaxfl list concepts`; in training and test: groups of them
    have rotated images (rotation) or permuted labels (swapped_labels), or each has another level of
    noise (feature_noise)"""
    concept_groups: Annotated[int, MANY, Effect(concept=_takers(CONCEPTS, "groups"))] = 4
    """groups of clients with one concept: 2 or 4 for rotation; client i is in group i mod groups"""
    feature_noise: Annotated[float, NOT_NEGATIVE, Effect(concept=_takers(CONCEPTS, "level"))] = 0.1
    """standard deviation of the noise on the last client's examples, of pixels in [0, 1]"""
    merge_test: bool = False
    """divide training and test set together; clients are then tested on a part of their own data"""
    max_examples: Annotated[
        int | None, Range(low=1, high=2**31 - 1), Heading("at most {} examples each", "clients")
    ] = None
    """most examples that a client may hold; the others are left out; no limit if not given"""
    val: Annotated[float, BELOW_ONE] = 0.2
    """fraction of a client's examples that validate"""
    test_fraction: Annotated[float, BELOW_ONE, Effect(test=("own", None))] = 0.2
    """fraction of them that test it, if --test is own; of a client's examples"""
    split: Annotated[
        Literal["random", "stratified"] | None,
        Heading("stratified split", "clients", where=Effect(split="stratified")),
    ] = None
    """how they come to training, validation and test part; at random, or each label in proportion
    (stratified); stratified for labels of owners with names, as of `jaxfl prepare csv`, else
    random"""
    test: Literal["reweighted", "own", "global"] | None = None
    """test examples of a client; the whole test set weighted by the client's label frequencies
    (reweighted), a part of its own data (own, the default for natural partitions), or the whole
    test set (global)"""
    folds: Annotated[
        int,
        Range(low=1, high=1000),
        Needs(test=("own", None), why="as a fold tests a client on a part of its own data"),
        Excludes("test_fraction", "a fold is the part that tests a client"),
        Heading("{} folds", "seeds"),
    ] = 1
    """cross-validation by so many runs side by side; for each seed, each of which tests every
    client on another part of its data, so that each example is tested once; 1 is one split, by
    --test-fraction"""
    feedback: Literal["val", "test-leaking"] = "val"
    """what chooses checkpoints, and what pfedgat learns from; the client's validation part, or,
    comparable to no other results, its test set"""
    seed: Annotated[int, SEED, Heading("seed {}", "seeds", always=True, unless="seeds")] = 0
    """seed of the run and of the data; of the initial model, participation and batches"""
    data_seed: Annotated[int | None, SEED, Heading("data seed {}", "seeds")] = None
    """seed of the data apart; of the partition, the split into training, validation and test, and
    the concept: all --seeds then share the same data, and differ by training alone"""


@dataclass(frozen=True)
class UploadOptions:
    """Attacks and defences, privacy and compression: what happens to a model on its way."""

    attack: Annotated[
        str | None, Names("attack", ATTACKS), OF_CLIENTS, Heading("attack {}", "clients")
    ] = None
    """what malicious clients do, see `jaxfl list attacks`; scores are then means over the others"""
    attack_ratio: Annotated[float, BELOW_ONE, OF_CLIENTS, Effect(attack=GIVEN)] = 0.4
    """fraction of malicious clients under an attack"""
    attack_seed: Annotated[int, SEED, OF_CLIENTS, Effect(attack=GIVEN)] = 0
    """which clients are malicious, whatever the seed of the run"""
    malicious: Annotated[
        tuple[int, ...],
        NOT_NEGATIVE,
        OF_CLIENTS,
        Effect(attack=GIVEN),
        Excludes("attack_ratio", NAMED_OR_DRAWN),
        Excludes("attack_seed", NAMED_OR_DRAWN),
    ] = ()
    """ids of the malicious clients, in place of a ratio and a seed"""
    attack_scale: Annotated[float | None, POSITIVE, Effect(attack=SCALED)] = None
    """strength of an attack that has one, such as the factor of mimic; the attack's own default if
    not given"""
    defend: Annotated[tuple[str, ...], Names("defence", DEFENCES)] = ()
    """clip, deduplicate, foolsgold, accept, see docs/robustness.md; clip: the server cuts updates
    to their median norm; deduplicate: updates that have a copy do not count; foolsgold: updates
    more alike than all others are shortened; accept: a client keeps its own model where that is
    clearly better on its validation data"""
    clip: Annotated[
        float | None,
        POSITIVE,
        Excludes("example_clip", "choose whether clients or single examples are to be protected"),
    ] = None
    """largest L2 norm of a client's update; over all of its parameters; with noise privacy for
    clients, see docs/privacy.md"""
    noise: Annotated[float, NOT_NEGATIVE, Needs(clip=GIVEN, why="its unit")] = 0.0
    """standard deviation of the noise that a client adds to its update, in units of --clip: privacy
    for clients"""
    delta: Annotated[float, DELTA, Effect(noise=GIVEN, example_noise=GIVEN)] = 1e-5
    """delta of the guarantee (epsilon, delta) in summary.json, under noise"""
    compress: Literal["none", "int8", "topk"] = "none"
    """8-bit integers, or the largest entries of an update; what clients make of their updates
    before they send them"""
    top_k: Annotated[float, SOME, Effect(compress="topk")] = 0.1
    """fraction of the entries that are sent under --compress topk"""


@dataclass(frozen=True)
class ParticipationOptions:
    """Who takes part in a round, and how much of its work arrives."""

    participation: Annotated[
        float, EVERY_CLIENT, Heading("{percent:g} % in each round", "clients")
    ] = 1.0
    """fraction of the clients in each round; without those of --unseen"""
    unseen: Annotated[float, BELOW_ONE, OF_CLIENTS, Heading("{percent:g} % unseen", "clients")] = (
        0.0
    )
    """fraction of the clients that are in no round; newcomers, whose scores stand apart from those
    of the others"""
    stragglers: Annotated[float, PART, Heading("{percent:g} % stragglers", "clients")] = 0.0
    """fraction of the clients that take a part of their steps; anew in each round, a random part of
    their local steps, or whole epochs of --local-epochs; see docs/guides/unreliable_clients.md"""
    least_work: Annotated[float, BELOW_ONE, Effect(stragglers=GIVEN)] = 0.0
    """smallest part of its local steps that a straggler takes"""
    drop_stragglers: Annotated[
        bool, Effect(stragglers=GIVEN), Heading("whose uploads are lost", "clients")
    ] = False
    """lose the uploads of the clients that take only a part of their steps"""
    work_file: Annotated[
        str | None,
        PATH,
        INPUT,
        Excludes("stragglers"),
        Heading("given work of each client", "clients"),
    ] = None
    """NumPy file of each client's part, in place of --stragglers; the part of its local steps that
    each client takes in every round: numbers [clients] in (0, 1]"""
    drop: Annotated[float, BELOW_ONE, Heading("{percent:g} % of the uploads lost", "clients")] = 0.0
    """probability that an upload is lost; after the client's training"""


@dataclass(frozen=True)
class RunOptions:
    """The rounds and the seeds, and what computes them."""

    rounds: Annotated[int, MANY, RESUMABLE, Heading("{} round(s)", "rounds", always=True)] = 20
    """communication rounds"""
    top_edges: Annotated[int | None, MANY] = None
    """most other clients that a client mixes with; those of the largest weights in its row; all if
    not given; for methods with a graph, see docs/methods.md"""
    store: Annotated[
        str | None,
        PATH,
        NO_SCORE,
        Needs(seeds=1, why="as it runs one seed after the other"),
        Needs(folds=1, why="as it runs one split"),
        Needs(keep_models="none", why="as models.npz would hold the models of all clients"),
    ] = None
    """directory of the clients' data and states on disk; made from the data set if it is new; a
    round reads its cohort only"""
    fail_on_divergence: Annotated[bool, NO_SCORE, RESUMABLE] = False
    """stop when an update is not finite; instead of leaving the client out of the round"""
    seeds: Annotated[int, MANY, OF_CLIENTS, Heading("{} seeds", "seeds")] = 1
    """how many seeds side by side: seed, seed + 1, ..."""
    chunk: Annotated[Annotated[int, MANY] | Literal["auto", "all"], NO_SCORE, RESUMABLE] = "auto"
    """clients computed side by side, the same result; a number, all, or auto (on CPU one, but for
    models of at most 20,000 parameters without convolutions; else all)"""
    devices: Annotated[
        Annotated[int, Range(low=1, high=1024)] | Literal["auto"], NO_SCORE, RESUMABLE
    ] = "auto"
    """devices of each process that share the clients; auto: all, at most one a client; of a CPU,
    one a core"""


@dataclass(frozen=True)
class ScoreOptions:
    """Which models are scored, when and by what, and how that may end the run."""

    eval_every: Annotated[int, MANY] = 1
    """rounds between two evaluations; the last round is always evaluated"""
    stop_after: Annotated[
        int | None, MANY, Heading("until {} evaluation(s) without a gain", "rounds")
    ] = None
    """evaluations without a gain that end the run; of the mean validation score of the deployed
    models, by the first --metric; --rounds at most"""
    eval_on: Annotated[Literal["all", "participants"], OF_CLIENTS] = "all"
    """clients to evaluate; all, or those of the round"""
    metric: Annotated[tuple[str, ...], Names("metric", METRICS, entry_of), NO_SCORE] = ()
    """scores of the models, see `jaxfl list metrics`; the first one selects, ranks and is drawn,
    and the others stand beside it; recall:died is that of one class, by its name or number;
    accuracy, or rmse where targets are numbers, if not given"""
    score_after: Annotated[
        After,
        Needs(
            eval_on="participants",
            participation=1,
            when="trained",
            why="as it scores the models of the clients of a round",
        ),
        Excludes(
            "unseen",
            "those of --unseen are in none, whose models it scores; give --score-after fine_tuned",
            when="trained",
        ),
    ] = "fine_tuned"
    """models that are scored beside the deployed ones; fine_tuned (the deployed models after
    further training), trained (those of the round, before the server answered), or none
    (quicker)"""
    target: Annotated[float | None, POSITIVE] = None
    """score of which the summary says when it is reached; the mean over clients: an accuracy in (0,
    1], an RMSE, or a value of the first --metric; in rounds, and in virtual time with --speeds or
    --durations"""


@dataclass(frozen=True)
class KeepingOptions:
    """What is kept of a run beside its scores."""

    checkpoint_every: Annotated[int | None, MANY, NO_SCORE] = None
    """rounds between two checkpoints, from which `jaxfl resume DIR` goes on; none if not given, but
    on Ctrl-C"""
    keep_checkpoints: Annotated[int, MANY, NO_SCORE, RESUMABLE] = 2
    """how many checkpoints, the newest ones"""
    keep_models: Annotated[Annotated[int, MANY] | Literal["last", "none"], NO_SCORE] = "last"
    """the models of the clients, for `jaxfl predict` and `jaxfl.load`: last (and the best by
    validation), also those that are deployed after every so many rounds (a number), or none"""
    keep_weights: Annotated[Annotated[int, MANY] | Literal["auto", "all", "last"], NO_SCORE] = (
        "auto"
    )
    """rounds whose mixing weights graph.npz keeps: all, the last one, every so many (a number), or
    auto: all up to 2 GiB, else every second, fourth, eighth, ...; the last one is always kept"""

    @property
    def snapshot_every(self) -> int | None:
        """Rounds between two snapshots of the models; None if there are none."""
        return self.keep_models if isinstance(self.keep_models, int) else None


@dataclass(frozen=True)
class ClockOptions:
    """A virtual clock of clients that differ in speed."""

    speeds: Annotated[
        float | None, SPREAD, Excludes("durations"), Heading("speeds {:g}", "clients")
    ] = None
    """spread of the clients' times for a round; sigma of their log-normal distribution, whose
    median is 1, and 0 if all take 1; a virtual clock then runs beside the rounds"""
    speed_seed: Annotated[int, SEED, Effect(speeds=GIVEN)] = 0
    """which clients are slow, whatever the seed of the run"""
    durations: Annotated[str | None, PATH, INPUT] = None
    """NumPy file of the time that each client takes; for a round (.npy, numbers [clients]), in
    place of --speeds"""
    arrivals: Annotated[
        Literal["synchronous", "asynchronous"],
        Effect(speeds=GIVEN, durations=GIVEN),
        Heading("{} arrivals", "clients"),
    ] = "synchronous"
    """when a round ends: with the slowest client of a drawn cohort, or (asynchronous) as soon as
    --participation of all clients have arrived, while the others go on training"""
