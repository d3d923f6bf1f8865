"""The options of each command, as frozen dataclasses."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from jaxfl.core.options import NOT_NEGATIVE, Range
from jaxfl.experiment.config.fields import MANY, DataOptions
from jaxfl.experiment.config.setting import SettingOptions
from jaxfl.experiment.config.training_fields import ModelOptions
from jaxfl.experiment.reading.read_models import Which
from jaxfl.experiment.trackers import Tracker

ReportFormat = Literal["md", "latex", "csv", "json", "png", "pdf", "svg", "gif"]
TRIALS = Range(low=1, high=1_000_000)
DEVICES = Range(low=1, high=1024)
WORKERS = Range(low=1, high=10_000)
SECONDS = Range(low=1, high=1_000_000)
SHARE = Range(0, 1, low_included=False, high_included=False, words="a share between 0 and 1")


@dataclass(frozen=True)
class ProcessOptions:
    """Several processes that run together, on one host or on many."""

    join: str | None = None
    """process 0's HOST:PORT, or cluster, see docs/guides/devices.md"""
    processes: Annotated[int | None, WORKERS] = None
    """how many processes, each started with the same options"""
    process: Annotated[int | None, NOT_NEGATIVE] = None
    """number of this process, from 0; process 0 writes"""
    join_timeout: Annotated[int | None, SECONDS] = None
    """seconds to wait for the other processes; 300 if not given"""


@dataclass(frozen=True)
class LaunchOptions:
    """Workers that share a comparison or a search: each takes what no other one has."""

    workers: Annotated[int | None, Range(low=0, high=10_000)] = None
    """start so many workers, and show what they have done; with 0, only write what workers need"""
    gpus_per_worker: Annotated[int | None, DEVICES] = None
    """GPUs of each worker"""


@dataclass(frozen=True)
class SetOptions:
    """Sets that hold the truth for a share of the examples."""

    conformal: Annotated[float | None, SHARE] = None
    """share of the sets that may miss the truth: with predict the set of labels or the interval of
    each example, with report how often those of each client hold it, see docs/guides/sets.md"""


@dataclass(frozen=True)
class Plugins:
    """Code of the user's own."""

    plugin: tyro.conf.UseAppendAction[tuple[Path, ...]] = ()
    """Python file of your own that adds methods, models, partitions, attacks or metrics; may be
    given several times"""


@dataclass(frozen=True)
class PresetOption:
    """The protocol of a published table."""

    preset: str | None = None
    """protocol of a published table, see `jaxfl list presets`"""


@dataclass(frozen=True)
class TrackOption:
    """Where the numbers of a run are sent."""

    track: Tracker | None = None
    """also send scores to this tracker, see docs/tracking.md"""


@dataclass(frozen=True)
class KeepOption:
    """What is kept of a run, for the help: its words are fields of `KeepingOptions`."""

    keep: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE ...")] = ()
    """what is kept beside the scores"""


@dataclass(frozen=True)
class Run(TrackOption, PresetOption, ProcessOptions, Plugins, KeepOption, SettingOptions):
    """Run one algorithm.

    [key=] stands behind a value: --attack mimic:ratio=0.3 (`jaxfl list options`).
    """

    algorithm: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[ALGORITHM]")] = (
        None
    )
    """which one, see `jaxfl list algorithms`; taken from --config if not given"""
    config: Path | None = None
    """config.json of a run to repeat; other options change it"""
    hyper: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE ...")] = ()
    """hyper-parameters of the algorithm"""
    out: Path | None = None
    """directory to write; runs/TIME-ALGORITHM if not given"""
    overwrite: bool = False
    """replace a run that the directory holds"""


@dataclass(frozen=True)
class Compare(
    TrackOption, PresetOption, LaunchOptions, ProcessOptions, Plugins, KeepOption, SettingOptions
):
    """Run several algorithms on the same clients and put them in one table and one picture."""

    algorithms: Annotated[tuple[str, ...], tyro.conf.arg(metavar="ALGORITHM ...")] = (
        *("local", "fedavg", "fedavg_ft", "pfedgraph", "pooled"),
    )
    """which ones, see `jaxfl list algorithms`, with or without --algorithms where they stand first;
    `all` for every one; ALGORITHM:KEY=VALUE,KEY=VALUE is a run with hyper-parameters of its own, so
    that an algorithm may occur several times"""
    equal_budget: bool = False
    """give every algorithm as many local steps as take the gradients of --local-steps of one
    training"""
    hyper: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE ...")] = ()
    """hyper-parameters, each for every algorithm that has it; ALGORITHM.KEY=VALUE is for one
    algorithm and wins over KEY=VALUE"""
    out: Path | None = None
    """directory to write; runs/TIME-compare if not given"""
    overwrite: bool = False
    """replace a comparison that the directory holds"""


@dataclass(frozen=True)
class Resume(TrackOption, LaunchOptions, ProcessOptions, Plugins):
    """Go on with a run, a comparison or a search that was stopped."""

    directory: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="[DIR]")] = Path()
    """directory of the run, the comparison or the search; the working directory if not given"""
    worker: bool = False
    """of a comparison or a search: take what no other worker has, until nothing is left; start as
    many as you like, on machines that share DIR"""
    devices: Annotated[int | None, DEVICES] = None
    """devices of each process, if not as many as before; the result is then equal up to rounding"""
    rounds: Annotated[int | None, MANY] = None
    """rounds in all, if not as many as before; so a finished run goes on, if it has checkpoints"""


# Given once for all files, and again for each that is another: an option takes one value, so that
# files may stand behind it.
FileValues = Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="VALUE")]


@dataclass(frozen=True)
class CsvFileOptions:
    """How CSV files are read."""

    columns: tuple[str, ...] = ()
    """CSV: names of the columns, if the file does not begin with them"""
    encoding: FileValues = ("utf-8",)
    """CSV: encoding of the text, such as latin-1 or utf-16; FILE=VALUE for one of the files, again
    for others"""
    decimal: FileValues = (".",)
    """CSV: , where 12,5 is a number; or FILE=VALUE"""
    thousands: FileValues = ()
    """CSV: , where 1,234 is a number; or FILE=VALUE"""


@dataclass(frozen=True, kw_only=True)
class Predict(CsvFileOptions, SetOptions, Plugins):
    """Predict with the model of one client of a finished run."""

    directory: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR")]
    """directory of the run"""
    input: Path
    """NPZ file with the inputs `x`, as the data set of the run has them, and optionally their
    targets `y`, for which the score is shown; for data of `jaxfl prepare csv` a CSV file with the
    same columns, the target among them or not; for images an image or a folder of them, in folders
    called as their classes or not"""
    client: str | None = None
    """name or id of the client; the first one if not given"""
    proba: bool = False
    """also give the probability of each label"""
    calibrate: bool = False
    """with --proba: calibrate the probabilities by a temperature, fitted on the client's validation
    examples in the data set of the run"""
    calibration: Literal["own", "all", "graph"] = "own"
    """of sets: calibrate by the client's own validation examples, by those of all clients,
    or by these with the weights of the graph"""
    times: tuple[float, ...] = ()
    """of a run on times to an event: also give the probability to be free of it at these times"""
    which: Annotated[int, MANY] | Which = "last"
    """the model after the last round, the one with the best validation score, or the one after a
    round that --keep models=ROUNDS kept, by its number"""
    seed: int | None = None
    """of a run with several seeds; the first if not given"""
    fold: int | None = None
    """of a run with several folds, from 0: the model that has not seen this part of the client's
    data; the first if not given"""
    out: Path | None = None
    """CSV file to write; the predictions are printed if not given"""
    overwrite: bool = False
    """replace the file"""


@dataclass(frozen=True)
class List(Plugins):
    """Show the names there are to choose from, or all about one of them."""

    what: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[KIND|NAME]")] = None
    """a kind (algorithms, datasets, partitions, concepts, models, augments, attacks, metrics or
    presets) for a line about each of its names, or a name for all about it; all names if not
    given"""
    data_dir: str | None = None
    """folder of NAME.npz files; the environment's JAXFL_DATA_DIR if not given"""


@dataclass(frozen=True)
class Sweep(LaunchOptions, Plugins, KeepOption, SettingOptions):
    """Search over hyper-parameters, by validation scores; of the best, the test score is shown."""

    algorithm: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[ALGORITHM]")] = (
        "pfedgraph"
    )
    """which one, see `jaxfl list algorithms`"""
    over: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE,... ...")] = ()
    """what to vary, hyper-parameters or options: NAME=VALUE,VALUE,... (all combinations) or
    NAME=LOW:HIGH[:log]"""
    trials: Annotated[int | None, TRIALS] = None
    """draw so many combinations at random; needed for ranges"""
    show_test: bool = False
    """also show the test score of every trial, which is not for choosing"""
    hyper: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE ...")] = ()
    """hyper-parameters that stay"""
    out: Path | None = None
    """directory to write; runs/TIME-sweep if not given"""
    overwrite: bool = False
    """replace what the directory holds"""


@dataclass(frozen=True)
class OwnOptions:
    """Of `jaxfl prepare csv`, `windows`, `text` and `images`: the user's own files."""

    name: str | None = None
    """own files: name of the data set; that of the folder of the files if not given"""
    overwrite: bool = False
    """own files: replace a data set of this name"""


@dataclass(frozen=True)
class CsvOptions:
    """Of `jaxfl prepare csv` and `windows`: a CSV file a site, with the names of its columns."""

    target: str | None = None
    """CSV: column to predict; needed, or --time and --event"""
    time: str | None = None
    """CSV: column of the times to an event, in place of --target"""
    event: str | None = None
    """CSV: column that is 1 where the event happened at --time, else 0: it had not until then"""
    id: str | None = None
    """CSV: column that names the rows; models do not see it"""
    owner: str | None = None
    """CSV: column that names the site of a row; the name of its file if not given"""
    group: str | None = None
    """CSV: column that names what belongs together, such as the patient of each row: no patient is
    in two of training, validation and test, or in two folds; models do not see it"""
    weight: str | None = None
    """csv: column of numbers of at least 0, what a row weighs in losses and scores; models do not
    see it"""
    split: str | None = None
    """csv: column that says of each row train or test; validation rows are some of train; models do
    not see it"""
    scale: bool = True
    """CSV: numbers become (x - mean) / deviation; with --no-scale they stay as they are"""
    categories: tuple[str, ...] = ()
    """CSV: columns of numbers that are codes, each of which becomes a feature of its own"""
    leave_out: tuple[str, ...] = ()
    """CSV: columns that models do not see"""
    missing: tuple[str, ...] = ()
    """CSV: further words for a missing value, beside an empty cell, NA, N/A, NaN, NULL, a point and
    ?"""
    task: Literal["classification", "regression"] | None = None
    """CSV: whether the target is classes or numbers; classes if not given, where it is text or at
    most 20 whole numbers"""

    describe: bool = False
    """CSV: only show each column at each site: values, the share that is missing, median, range or
    words; writes nothing and needs neither --target nor --data-dir"""


@dataclass(frozen=True)
class WindowOptions:
    """Of `jaxfl prepare windows`: the rows of a CSV file are the steps of a series."""

    steps: int | None = None
    """windows: rows of a window; needed."""
    stride: int | None = None
    """windows: rows from one window to the next; as many as --steps if not given, so that windows
    do not overlap"""
    series: str | None = None
    """windows: column that names the recording of a row, beside the site; no window has rows of two
    recordings"""
    order: str | None = None
    """windows: column of numbers or dates that orders the rows of a recording, and tells where rows
    are missing; no window crosses such a gap"""


@dataclass(frozen=True)
class ImageOptions:
    """Of `jaxfl prepare images DIR`, whose files are OWNER/CLASS/FILE."""

    size: int = 32
    """images: pixels of a side"""
    owner_table: Path | None = None
    """images: CSV file with the columns file and owner, where the files are CLASS/FILE"""


@dataclass(frozen=True)
class TextOptions:
    """Of texts: `jaxfl prepare text`, and published ones."""

    tokenizer: Path | None = None
    """texts: tokenizer.json of the model, which numbers the words; needed for text"""
    length: int = 128
    """texts: words or parts of words of each"""
    text: str | None = None
    """text: column of the texts in CSV files"""


@dataclass(frozen=True)
class PublishedOptions:
    """Of published data sets."""

    tfds_manual_dir: Path | None = None
    """folder with published files that were fetched by hand"""
    words: int = 10_000
    """texts without a tokenizer: size of the vocabulary"""


@dataclass(frozen=True, kw_only=True)
class Prepare(
    PublishedOptions,
    TextOptions,
    ImageOptions,
    WindowOptions,
    CsvFileOptions,
    CsvOptions,
    OwnOptions,
):
    """Write a data set as arrays, from published files, TensorFlow Datasets or your own files."""

    data: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    """which one: of docs/data.md, or another image or text classification set of TensorFlow
    Datasets; or, for your own files, csv (each row is an example), windows (so many rows are one),
    text or images"""
    files: Annotated[
        tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="[FILE ...]")
    ] = ()
    """of csv, windows and text: a file for each site, as in sites/*.csv; of text also .txt, whose
    targets are the next words; of images: their folder"""
    data_dir: str | None = None
    """folder to write NAME.npz into; the environment's JAXFL_DATA_DIR if not given"""


@dataclass(frozen=True)
class Describe(PresetOption, Plugins, ModelOptions, DataOptions):
    """Show who holds what: clients, examples, labels, imbalance, and how large the model is."""

    out: Path | None = None
    """also draw it into this file: NAME.png, NAME.pdf or NAME.svg"""


@dataclass(frozen=True)
class Report(SetOptions, Plugins):
    """Put finished runs in one table."""

    directories: Annotated[
        tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="DIR ...")
    ] = ()
    """directories of runs or comparisons"""
    out: Path | None = None
    """also write comparison.json, comparison.md and the picture there, and with --clients
    clients.md"""
    format: tuple[ReportFormat, ...] = ()
    """md, latex, csv or json: print the table as Markdown, LaTeX, or a record for each run and
    seed, or with --out write it there; png, pdf, svg: pictures of the comparison and of each run;
    gif: the graph by round"""
    by: str | None = None
    """option or hyper-parameter by whose values the columns of one table stand"""
    against: str | None = None
    """run or algorithm from which the others differ: differences with confidence intervals and a
    paired test"""
    clients: bool = False
    """show in place of that table what each client gains by each run, with an interval, and whose
    models it is given; --against names the run to compare with, local if not given"""
    client: str | None = None
    """the same of one client alone, by its name or id"""
    columns: tuple[str, ...] = ()
    """columns of the table, in this order, such as accuracy over_local worst sent; all if not
    given, and of LaTeX the first ones"""
    names: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=TEXT ...")] = ()
    """what runs, algorithms and columns are called in tables and pictures, for example
    fedavg_ft="FedAvg, fine-tuned" for a method"""
    title: bool = True
    """write the setting above the pictures; a paper says it in the caption"""
    panels: bool = False
    """also write each panel of a picture as a file of its own, without a title, such as
    graph-matrix.png"""
    highlight: tuple[str, ...] = ()
    """runs or algorithms that are in colour among many, beside the best"""
    html: Path | None = None
    """also write one page that a browser shows without a network; DIR may then be that of a search,
    see docs/report_page.md"""
    overwrite: bool = False
    """replace a comparison that the directory holds, and the page"""


@dataclass(frozen=True)
class Worth(Plugins):
    """Show what each client of finished runs is worth to each other one, by runs without it."""

    directories: Annotated[
        tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="DIR ...")
    ] = ()
    """directories of runs or comparisons; worth.csv and worth.png are written into that of each
    run"""
    shapley: bool = False
    """also give Shapley values, of up to ten clients: runs of coalitions of all sizes"""
    overwrite: bool = False
    """replace these files"""


@dataclass(frozen=True)
class Cite:
    """Print BibTeX entries: of the papers of methods, or of jaxfl itself."""

    algorithms: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[ALGORITHM ...]")
    ] = ()
    """which methods, see `jaxfl list algorithms`; jaxfl itself if not given"""
