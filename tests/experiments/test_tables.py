"""The files of published tables: they load, their cells can be run, their numbers are whole."""

import dataclasses
import functools
import importlib.util
from pathlib import Path

import numpy as np
import pytest

from experiments.tables import page, results, specification
from experiments.tables.measures import groups, of_receivers, of_weights
from experiments.tables.specification import FOLDER, Cell, Column, Row, Table
from jaxfl.core.errors import InputError
from jaxfl.experiment import Config
from jaxfl.uplink import malicious_clients

NAMES = specification.names()


@functools.cache
def cells_of(name: str) -> tuple[Table, list[Cell]]:
    """A table and its runs for seed 0; checking 900 configs takes seconds."""
    loaded = specification.load(name)
    return loaded, loaded.cells(0)


# Published means that are not the mean of the published numbers: (table, row, column).
SLIPS = {
    ("pfedgat.table1", "pFedHN", "CIFAR-10 mean"),
    ("pfedgat.table2", "Local", "mean"),
    ("pfedgat.table2", "FedAMP", "mean"),
    ("pfedgraph.table1", "pFedGraph", "CIFAR-10 mean"),
    ("pfedgraph.table1", "pFedGraph", "CIFAR-100 mean"),
}


def table(**parts) -> Table:
    """A table of one column and the given rows, without a file."""
    chosen = {"columns": (Column(name="one"),), "name": "made.up"} | parts
    return Table(**chosen)


@pytest.mark.long(every=4)
@pytest.mark.parametrize("name", NAMES)
def test_every_cell_of_a_table_can_be_made_and_says_where_it_stands(name):
    loaded, cells = cells_of(name)
    assert loaded.title
    assert loaded.paper
    assert loaded.place
    assert loaded.link.startswith("https://")
    assert loaded.note
    assert cells or loaded.script
    for names in ([one.name for one in loaded.rows], [one.name for one in loaded.columns]):
        assert len(set(names)) == len(names)
        assert all(names)
    assert all(len(row.published) == len(loaded.columns) for row in loaded.rows)


@pytest.mark.parametrize("name", NAMES)
def test_published_means_are_the_means_of_published_numbers_but_for_known_slips(name):
    loaded = specification.load(name)
    for row in loaded.rows:
        numbers = dict(zip([one.name for one in loaded.columns], row.published, strict=True))
        for column in loaded.columns:
            if column.mean_of:
                parts = [numbers[part] for part in column.mean_of]
                if None in parts:  # a row of ours, of which the paper has no numbers
                    assert numbers[column.name] is None
                    continue
                mean = np.mean(parts)
                # The papers round some means and cut others off.
                slip = abs(numbers[column.name] - mean) > 0.01
                assert slip == ((name, row.name, column.name) in SLIPS)


@pytest.mark.parametrize("name", NAMES)
def test_the_script_and_the_picture_of_a_figure_exist(name):
    table = specification.load(name)
    assert not table.script or importlib.util.find_spec(table.script) is not None
    docs = Path(specification.__file__).parents[2] / "docs"
    assert not table.picture or (docs / table.picture).is_file()


def test_the_table_in_the_readme_is_a_part_of_the_papers_tables():
    root = Path(specification.__file__).parents[2]
    readme = (root / "README.md").read_text()
    section = readme.partition("## The papers' tables")[2].partition("\n## ")[0]
    shown = [line for line in section.splitlines() if line.startswith("|")]
    paper = (root / "docs" / "papers" / "pfedgraph.md").read_text()
    table = paper.partition("\n## Table 1, section 4.2. Accuracy on images")[2].partition("\n## ")[
        0
    ]
    assert len(shown) > 5
    assert set(shown) <= set(table.splitlines())


@pytest.mark.slow(seconds=5)
def test_no_two_cells_of_a_table_of_scores_are_the_same_run():
    """But for local training under attacks, which no attack changes."""
    for name in NAMES:
        cells = [cell for cell in cells_of(name)[1] if cell.measure in ("score", "loss")]
        files = [results.file_of(cell.config) for cell in cells]
        same = {files.index(file) for file in files if files.count(file) > 1}
        rows = {cells[number].row.name for number in same}
        assert rows == ({"Local"} if name == "pfedgraph.table3" else set())


def test_the_malicious_clients_of_pfedgraphs_tables_are_those_of_its_figure_3():
    config = specification.load("pfedgraph.figure3").cells(0)[0].config
    chosen = malicious_clients(config.clients, config.attack_ratio, config.attack_seed)
    assert np.flatnonzero(chosen).tolist() == [2, 6, 8, 9]


def test_a_row_without_an_attack_leaves_the_options_of_attacks_alone():
    attacked = {"attack": "shuffle", "attack_ratio": 0.6, "attack_seed": 3}
    rows = (
        Row(name="attacked", algorithm="fedavg"),
        Row(name="not", algorithm="fedavg", options={"attack": ""}),
    )
    made = table(options=attacked, rows=rows)
    assert made.cell(rows[0], made.columns[0], 0).config.attack_ratio == 0.6
    without = Config(algorithm="fedavg", score_after="none")
    assert made.cell(rows[1], made.columns[0], 0).config == without


def test_an_unknown_measure_is_refused_with_the_known_ones():
    row = Row(name="a", algorithm="fedavg", measure="own_group")
    with pytest.raises(InputError, match="own_group_weight"):
        table(rows=(row,)).cell(row, Column(name="one"), 0)


@pytest.mark.parametrize(
    "same",
    [
        {"attack_ratio": 0.6},  # of no attack
        {"attack_seed": 3},
        {"beta": 0.1, "partition": "iid"},  # of no Dirichlet partition
        {"local_steps": 200},  # what is taken if nothing is said
        {"hyper": {"lam": 0.01}},  # the method's default
        {"lr": 0.01},
        {"chunk": 2},
    ],
)
def test_options_that_decide_about_nothing_do_not_change_the_file_of_a_result(same):
    partition = {"partition": same["partition"]} if "partition" in same else {}
    plain = Config(algorithm="pfedgraph", **partition)
    assert results.file_of(plain) == results.file_of(dataclasses.replace(plain, **same))


@pytest.mark.parametrize(
    "other",
    [
        {"hyper": {"lam": 0.02}},
        {"hyper": {"alpha": 0.8}},
        {"local_epochs": 5},
        {"local_steps": 100},
        {"attack": "shuffle"},
        {"seed": 1},
        {"algorithm": "fedavg"},
        {"dataset": "mnist"},
    ],
)
def test_options_that_decide_change_the_file_of_a_result(other):
    plain = Config(algorithm="pfedgraph")
    assert results.file_of(plain) != results.file_of(dataclasses.replace(plain, **other))


def test_whole_numbers_and_fractions_name_the_same_file():
    rows = (
        Row(name="whole", algorithm="pfedgraph", options={"lr": 1}, hyper={"lam": 1}),
        Row(name="fraction", algorithm="pfedgraph", options={"lr": 1.0}, hyper={"lam": 1.0}),
    )
    made = table(rows=rows)
    one, other = (made.cell(row, made.columns[0], 0).config for row in rows)
    assert results.file_of(one) == results.file_of(other)


def test_an_unknown_option_of_a_table_is_refused_with_its_place():
    row = Row(name="a", algorithm="fedavg", options={"bata": 1})
    with pytest.raises(InputError, match=r"made\.up, a, one"):
        table(rows=(row,)).cell(row, Column(name="one"), 0)


def test_the_results_of_all_seeds_are_those_of_each_seed(tmp_path):
    config = Config(algorithm="fedavg", rounds=3)
    for seed in (0, 2):
        results.write(dataclasses.replace(config, seed=seed), {"of": seed}, tmp_path)
    found = results.read_seeds(config, range(5), tmp_path)
    assert {seed: result["of"] for seed, result in found.items()} == {0: 0, 2: 2}


def weights(rows: list[list[float]], ids: list[int] | None = None) -> dict:
    """A result that holds these weights."""
    return {"weights": {"weights": rows}, "ids": ids or []}


def test_groups_are_the_clients_with_the_same_labels():
    severe = Config(dataset="cifar100", classes_per_client=20, partition="pathological", clients=10)
    assert groups(severe).tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
    assert set(groups(Config(partition="iid", clients=4)).tolist()) == {0}
    with pytest.raises(InputError, match="no known groups"):
        groups(Config(partition="dirichlet", clients=4))


def test_weights_of_pairs_with_the_same_labels():
    # Clients 0 and 2 hold labels 0 to 4, clients 1 and 3 the others.
    config = Config(dataset="mnist", partition="pathological", classes_per_client=5, clients=4)
    rows = [[0.4, 0.1, 0.3, 0.2], [0, 0.5, 0, 0.5], [0.5, 0, 0.5, 0], [0.25, 0.25, 0.25, 0.25]]
    found = {
        name: of_weights(name, config, weights(rows))
        for name in ("own_group_weight", "self_weight", "partner_similarity", "other_similarity")
    }
    assert found["own_group_weight"] == pytest.approx((0.7 + 1 + 1 + 0.5) / 4)
    assert found["self_weight"] == pytest.approx((0.4 + 0.5 + 0.5 + 0.25) / 4)
    assert found["partner_similarity"] == pytest.approx((0.75 + 1 + 1 + 1) / 4)
    assert found["other_similarity"] == pytest.approx((0.25 + 0.5 + 0 + 0 + 0 + 0 + 1 + 1) / 8)


def test_the_weight_of_malicious_clients_counts_benign_receivers_alone():
    config = Config(partition="iid", clients=4, attack="shuffle", attack_ratio=0.25)
    (bad,) = np.flatnonzero(malicious_clients(4, 0.25))
    rows = np.zeros((4, 4))
    rows[:, bad] = 0.3
    rows[np.arange(4), np.arange(4)] = 0.7
    rows[bad] = 0
    rows[bad, bad] = 1
    result = weights(rows.tolist())
    assert of_weights("malicious_weight", config, result) == pytest.approx(0.3)
    assert of_weights("self_weight", config, result) == pytest.approx(0.7)
    with pytest.raises(InputError, match="without an attack"):
        of_weights("malicious_weight", dataclasses.replace(config, attack=None), result)


def test_weights_along_the_edges_of_a_known_graph():
    # Clients 0, 1, 2, 3 are in the nodes 0, 1, 2, 0 of a path 0 - 1 - 2; client 3 is away.
    config = Config(partition="nodes", topology=3, clients=4, participation=0.75)
    rows = [[0.2, 0.6, 0.2], [0.3, 0.4, 0.3], [0.0, 0.5, 0.5]]  # of clients 3, 1, 2
    result = weights(rows, ids=[3, 1, 2])
    assert of_weights("linked_weight", config, result) == pytest.approx(3 * (2.0 - 0.3) / 4)
    assert of_weights("unlinked_weight", config, result) == pytest.approx(3 * 0.2 / 2)
    assert of_weights("same_node_weight", config, result) is None
    # By receiver: client 1 is linked to both others, and neither is without an edge to it.
    linked, unlinked = (
        of_receivers(f"{name}_weight", config, result) for name in ("linked", "unlinked")
    )
    np.testing.assert_allclose(linked, [1.8, 0.9, 1.5])
    np.testing.assert_allclose(unlinked, [0.6, np.nan, 0.0])
    pair = weights([[0.5, 0.5], [0.25, 0.75]], ids=[0, 3])
    assert of_weights("same_node_weight", config, pair) == pytest.approx(0.75)
    with pytest.raises(InputError, match="nodes"):
        of_weights("linked_weight", dataclasses.replace(config, partition="iid"), result)


def test_a_result_without_weights_has_no_number_of_them():
    config = Config(partition="iid", clients=4)
    assert of_weights("self_weight", config, {"weights": {}}) is None


def test_the_page_shows_numbers_of_a_second_source_and_of_other_units(tmp_path):
    row = Row(name="FedAvg", algorithm="fedavg", published=(0.9,), also=(0.7,), measure="loss")
    made = table(rows=(row,), also="a rerun", unit="loss", digits=3, margin=0.1, place="somewhere")
    config = made.cell(row, made.columns[0], 0).config
    results.write(config, {"scores": {"last": {"deployed": -0.75}}}, tmp_path)
    (entry,) = page.entries(made, tmp_path).values()
    assert entry.ours == (0.75,)
    assert entry.off
    shown = page.markdown(made, tmp_path)
    assert "**0.750** (0.9; 0.7)" in shown
    assert "a rerun" in shown


@pytest.mark.slow
def test_a_table_of_many_columns_is_cut_into_tables_that_fit_a_page(tmp_path):
    columns = tuple(
        Column(name=f"of {count}", options={"clients": count}) for count in range(4, 14)
    )
    made = table(columns=columns, rows=(Row(name="FedAvg", algorithm="fedavg"),), place="here")
    for column in columns:
        config = made.cell(made.rows[0], column, 0).config
        results.write(config, {"scores": {"last": {"deployed": 0.5}}}, tmp_path)
    heads = [line for line in page.markdown(made, tmp_path).splitlines() if line.startswith("|  |")]
    names = [name.strip() for line in heads for name in line.strip("|").split("|")[1:]]
    assert names == [column.name for column in columns]
    assert max(line.count("|") - 1 for line in heads) == 8


def test_the_first_page_counts_the_cells_that_agree_and_no_means(tmp_path):
    columns = (
        Column(name="few", options={"clients": 4}),
        Column(name="many", options={"clients": 8}),
        Column(name="mean", mean_of=("few", "many")),
    )
    row = Row(name="FedAvg", algorithm="fedavg", published=(50.0, 70.0, 60.0))
    made = table(columns=columns, rows=(row,), place="table 1", name="ours.table1", paper="Ours")
    for column, score in zip(columns, (0.505, 0.5), strict=False):
        config = made.cell(row, column, 0).config
        results.write(config, {"scores": {"last": {"deployed": score}}}, tmp_path)
    written = page.pages([made], tmp_path)
    assert written["papers.md"].split("\n\n")[1].startswith("1 of the 2 numbers")
    assert "(papers/ours.md#table-1-" in written["papers.md"]
    assert "\n## Table 1. " in written["papers/ours.md"]


@pytest.mark.slow
def test_a_mean_over_columns_is_that_of_the_numbers_that_are_shown(tmp_path):
    columns = (
        Column(name="few", options={"clients": 4}),
        Column(name="many", options={"clients": 8}),
        Column(name="mean", mean_of=("few", "many")),
    )
    made = table(columns=columns, rows=(Row(name="FedAvg", algorithm="fedavg"),), place="here")

    def mean_after(column: Column, seed: int, score: float) -> tuple[float, ...]:
        config = made.cell(made.rows[0], column, seed).config
        results.write(config, {"scores": {"last": {"deployed": score}}}, tmp_path)
        return page.entries(made, tmp_path)["FedAvg", "mean"].ours

    assert mean_after(columns[0], 0, 0.5) == ()
    assert mean_after(columns[1], 0, 0.7) == pytest.approx((60.0,))
    # Two seeds of one column, one of the other.
    assert mean_after(columns[0], 1, 0.3) == pytest.approx((55.0,))
    # A mean for each seed.
    assert mean_after(columns[1], 1, 0.9) == pytest.approx((60.0, 60.0))


def test_there_is_a_file_for_each_table_and_figure_with_results():
    present = {
        file.relative_to(FOLDER).with_suffix("").as_posix() for file in FOLDER.glob("*/*.toml")
    }
    wanted = {
        *(f"pfedgraph/table{number}" for number in range(1, 15)),
        *("pfedgraph/figure2", "pfedgraph/figure3", "pfedgraph/figure4a", "pfedgraph/figure4b"),
        *(f"pfedgat/table{number}" for number in range(1, 5)),
        *("pfedgat/figure3", "pfedgat/figure4"),
        *("fedcedar/table1", "fedcedar/table2"),
        *(f"fedcedar/figure{number}" for number in range(2, 5)),
        "gfedmtl/figure2",
        "niid_bench/table3",
        "pfllib/benchmark",
    }
    assert wanted <= present
