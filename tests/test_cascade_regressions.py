"""Faults that were found in cascades, stitching and their commands, each named after what went wrong."""

from __future__ import annotations

import json
import time

import pytest

from cascade_machines import machine
from stitchloop.cascade.evaluate import Model
from stitchloop.cascade.flow import Flow
from stitchloop.cascade.read import load_cascade, read_cascade
from stitchloop.cascade.run import Request, run_stitch
from stitchloop.cascade.specs import group_specs
from stitchloop.cascade.stitch import stitch
from stitchloop.content import content_root, shipped_file, shipped_names
from stitchloop.errors import InputError, NoMapping
from stitchloop.read import load_spec

HEAD = "problem:\n  ranks: {B: 4, D: 3, I: {size: 8, iterative: true}}\n"
SCAN = "  einsums: {scan: 'Y[b,i] = X[b,i] + 0.5 * Y[b,i-1]'}\n"


def read(tmp_path, text):
    path = tmp_path / "given.yaml"
    path.write_text(text, encoding="utf-8")
    return load_cascade(path)


def screen(parts) -> str:
    from rich.console import Console

    console = Console(width=150, record=True, markup=False, file=open("/dev/null", "w"))  # noqa: SIM115
    for part in parts:
        console.print(part)
    return console.export_text()


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (f"{HEAD}  name: [a]\n{SCAN}", 3, "found a list; a name of at most 200 signs"),
        (f'{HEAD}  name: "a\\e[31m"\n{SCAN}', 3, "leave out what cannot be printed"),
        (f"{HEAD}  tensors: {{Y: {{initial: '5 6'}}}}\n{SCAN}", 3, "found '5 6'; a tensor's name or a number"),
        (f"{HEAD}  tensors: {{Y: {{initial: .inf}}}}\n{SCAN}", 3, "found inf; a tensor's name or a number"),
        (f"{HEAD}  tensors: {{Y: {{final: 'a b'}}}}\n{SCAN}", 3, "found 'a b'; a name for the last state"),
        (f"{HEAD}  einsums: {{a: 'Y[b] = 1e999 * X[b]'}}\n", 3, "a number below 1.8e308"),
        (f"{HEAD}  inputs: [X]\n  weights: [X]\n{SCAN}", 4, "X is listed under inputs too"),
        (f"{HEAD}  einsums: [{{equation: 'Y[b] = X[b]', equations: ['Z[b] = X[b]']}}]\n", 3, "both 'equation' and 'equations'"),
        (f"{HEAD}  einsum: {{a: 'Y[b] = X[b]'}}\n", 3, "did you mean einsums"),
        (f"{HEAD}  einsums: {{{'a' * 900}: 'Y[b] = X[b]'}}\n", 3, "at most 200 of them"),
        ("problem:\n  ranks: {B: 2*D, D: 3*B}\n  einsums: {a: 'Y[b] = X[b]'}\n", 2, "B, D, which wait for one another"),
        (
            "problem:\n  ranks: {I: {size: 4, iterative: true}, J: {size: 4, iterative: true}}\n"
            "  einsums: {a: 'Y[i,j] = X[i,j] + Y[i-1,j] + Y[i,j-1]'}\n",
            3,
            "earlier steps of I and J; carry a tensor along one iterative rank",
        ),
        (
            f"{HEAD}  outputs: [Z]\n  einsums:\n    scan: Y[b,i] = X[b,i] + Y[b,i-1]\n    c: Z[b] = W[b]\n",
            5,
            "unused output Y: no other Einsum reads it",
        ),
    ],
)
def test_faults_that_were_accepted_or_explained_wrongly(tmp_path, text, line, message):
    with pytest.raises(InputError) as caught:
        read(tmp_path, text)
    assert caught.value.place.line == line
    assert message in str(caught.value)


def test_quoted_names_are_plain_names_in_what_is_written(tmp_path):
    cascade = read(tmp_path, f'{HEAD}  tensors: {{"Y": {{initial: "Y0", final: "YL"}}}}\n{SCAN}')
    (state,) = cascade.states
    assert (type(state.initial), type(state.final)) == (str, str)
    run_stitch(Request(cascade, machine(), figures=False), tmp_path / "out")
    assert "Y0" in (tmp_path / "out/group-01/fused-problem.yaml").read_text()


def test_markup_in_a_name_is_shown_as_it_stands(tmp_path):
    cascade = read(tmp_path, f'{HEAD}  name: "x [bold]y[/bold] [/]"\n{SCAN}')
    assert "x [bold]y[/bold] [/] on mambalaya" in screen(run_stitch(Request(cascade, machine(), figures=False), tmp_path / "out"))


def test_what_only_its_own_recurrence_reads_is_an_output():
    cascade = read_cascade({"ranks": {"I": {"size": 8, "iterative": True}}, "einsums": ["Y[i] = X[i] + 0.5 * Y[i-1]"]})
    assert cascade.outputs == ("Y",)
    kept = read_cascade(
        {
            "ranks": {"I": {"size": 8, "iterative": True}},
            "tensors": {"Y": {"final": "YL"}},
            "outputs": [],
            "einsums": ["Y[i] = X[i] + 0.5 * Y[i-1]"],
        }
    )
    assert kept.outputs == ()


def test_iterative_ranks_of_different_sizes_keep_them(tmp_path):
    ranks = {"B": 4, "I": {"size": 32, "iterative": True}, "T": {"size": 16, "iterative": True}}
    einsums = ["H[b,i] = 0.9 * H[b,i-1] + X[b,i]", "Z[b,t] = sum[i](H[b,i]) * W[t]", "G[b,t] = 0.5 * G[b,t-1] + Z[b,t]"]
    cascade = read_cascade({"ranks": ranks, "einsums": einsums})
    run_stitch(Request(cascade, machine(), figures=False), tmp_path / "a")
    assert json.loads((tmp_path / "a/groups.json").read_text())["ranks"] == {"B": 4, "I": 32, "T": 16}
    assert Model(cascade, machine()).at_context(1).cascade.sizes == {"B": 4, "I": 1, "T": 16}


def test_every_shipped_cascade_is_named_where_a_name_is_unknown():
    with pytest.raises(InputError) as caught:
        shipped_file("nothing", "problems", holding="einsums")
    assert "mamba-2.8b" in str(caught.value)
    assert "bert_base" not in str(caught.value)
    assert "mamba/mamba-2.8b" in shipped_names("problems")
    assert not [name for name in shipped_names("arch") if "." in name]


def test_the_machine_of_map_is_named_after_its_file():
    from stitchloop.cascade.map import map_cascade

    spec = load_spec([content_root() / "arch/mambalaya.yaml", content_root() / "problems/cascades/attention.yaml"])
    assert map_cascade(spec, "ri").evaluated.performance.machine.name == "mambalaya"


def test_no_room_for_the_best_grouping_names_the_einsum_that_needs_most():
    layer = load_cascade(content_root() / "problems/mamba/mamba-370m.yaml")
    from stitchloop.cascade.run import solve

    with pytest.raises(NoMapping) as caught:
        solve(Request(layer, machine().with_buffer(512), figures=False))
    (obstacle,) = caught.value.obstacles
    assert "the group of E" in obstacle.sentence
    assert " to " not in obstacle.sentence
    assert "fuses less" not in obstacle.relaxation
    enough = int(float(obstacle.relaxation.split()[3].replace(",", "")) / machine().word_bytes) + 1
    assert solve(Request(layer, machine().with_buffer(enough), figures=False)).evaluated.performance.seconds > 0


def test_specs_of_long_cascades_are_worked_out_in_good_time():
    texts = ["T0[b,i,d] = X[b,i,d]"]
    for n in range(1, 250):
        carried = f" + 0.5 * T{n}[b,i-1,d]" if n % 10 == 0 else ""
        texts.append(f"T{n}[b,i,d] = relu(T{n - 1}[b,i,d]){carried}")
    ranks = {"B": {"size": 4, "batch": True}, "I": {"size": 16, "iterative": True}, "D": 8}
    cascade = read_cascade({"ranks": ranks, "einsums": texts})
    for strategy in ("none", "full"):
        start = time.process_time()
        stitching = stitch(cascade, strategy)
        specs = group_specs(cascade, [group.nodes for group in stitching.groups], 2**24)
        Model(cascade, machine()).evaluate(group.nodes for group in stitching.groups)
        assert len(specs) == len(stitching.groups)
        assert time.process_time() - start < 12


def test_the_longest_closed_run_of_a_group_is_found():
    layer = load_cascade(content_root() / "problems/mamba/mamba-370m.yaml")
    groups = [group.nodes for group in stitch(layer, "full").groups]
    from stitchloop.cascade.export import export_group

    flow = Flow(export_group(layer, groups, 0))
    run = flow.run()
    assert run is not None
    assert {"AD", "HH", "BD", "HX", "H"} <= set(run.tensors)
    reads_after = {name for step in flow.steps[run.last + 1 :] for name, _ in step.reads}
    assert not reads_after & set(run.tensors)


def chain(count: int) -> dict:
    """Elementwise Einsums one after the other, a carried sum in the middle."""
    einsums = [f"T{n}[b,i] = relu(T{n - 1}[b,i])" for n in range(1, count)]
    einsums[count // 2] = f"T{count // 2 + 1}[b,i] = T{count // 2}[b,i] + 0.5 * T{count // 2 + 1}[b,i-1]"
    return {"ranks": {"B": {"size": 4, "batch": True}, "I": {"size": 8, "iterative": True}}, "einsums": einsums}


def test_folders_of_an_earlier_run_are_removed_and_nothing_else(tmp_path):
    layer = load_cascade(content_root() / "problems/mamba/mamba-370m.yaml")
    run_stitch(Request(layer, machine(), "ri", figures=False), tmp_path)
    assert len(list(tmp_path.glob("group-*"))) == 12
    (tmp_path / "group-12/mine.txt").write_text("kept")
    (tmp_path / "group-77").mkdir()
    (tmp_path / "group-77/fused.json").write_text("{}")
    (tmp_path / "stats.json").write_text("{}")
    run_stitch(Request(layer, machine(), "ri+rsb+rsp", figures=False), tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        *("group-01", "group-02", "group-03", "group-12", "group-77"), "groups.json", "stats.json",
    ]  # fmt: skip
    assert [p.name for p in (tmp_path / "group-12").iterdir()] == ["mine.txt"]
    listed = json.loads((tmp_path / "groups.json").read_text())["files"]
    assert all((tmp_path / name).is_file() for name in listed)


@pytest.mark.parametrize("listed", [["../victim/fused.json", "group-05/../../victim/fused.json", "victim.txt", 5, None], "x", {}])
def test_a_forged_list_of_files_removes_nothing_outside(tmp_path, listed):
    output = tmp_path / "out"
    (output / "real").mkdir(parents=True)
    (tmp_path / "victim").mkdir()
    victims = [tmp_path / "victim/fused.json", output / "victim.txt", output / "real/fused.json"]
    for victim in victims:
        victim.write_text("kept")
    (output / "group-05").symlink_to(output / "real", target_is_directory=True)
    names = [*listed, "group-05/fused.json"] if isinstance(listed, list) else listed
    (output / "groups.json").write_text(json.dumps({"files": names}))
    run_stitch(Request(read_cascade(chain(4)), machine(), figures=False), output)
    assert all(victim.read_text() == "kept" for victim in victims)


def test_inputs_in_an_old_group_folder_stay(tmp_path):
    (tmp_path / "group-09").mkdir()
    given = tmp_path / "group-09/fused-problem.yaml"
    given.write_text(f"{HEAD}{SCAN}")
    (tmp_path / "groups.json").write_text(json.dumps({"files": ["group-09/fused-problem.yaml"]}))
    run_stitch(Request(load_cascade(given), machine(), figures=False), tmp_path)
    assert given.exists()


def test_figures_are_drawn_where_only_some_strategies_fit(tmp_path):
    layer = load_cascade(content_root() / "problems/mamba/mamba-370m.yaml").with_sizes({"I": 64})
    request = Request(layer, machine().with_buffer(2500), "none", context=64, generate=2)
    text = screen(run_stitch(request, tmp_path))
    assert "does not fit" in text
    assert (tmp_path / "end-to-end.png").read_bytes().startswith(b"\x89PNG")
    baselines = json.loads((tmp_path / "groups.json").read_text())["baselines"]
    assert [entry["fits"] for entry in baselines.values()] == [True, False, False, False]


def test_the_guide_says_in_words_what_its_figures_say(tmp_path):
    ranks = {"B": 4, "I": {"size": 32, "iterative": True}, "T": {"size": 16, "iterative": True}, "D": 8}
    first, last = "H[b,i,d] = 0.9 * H[b,i-1,d] + X[b,i,d]", "G[b,t,d] = G[b,t-1,d] + Z[b,t,d]"
    cascade = read_cascade({"ranks": ranks, "einsums": [first, "Z[b,t,d] = sum[i](H[b,i,d]) * W[t,d]", last]})
    text = " ".join(screen(run_stitch(Request(cascade, machine(), "auto", figures=False), tmp_path)).split())
    assert "more fusion never loses in long generation" not in text
    assert "more fusion loses from ri+rsb+rsp on" in text


def test_the_least_time_names_a_grouping_that_moves_far_less(tmp_path):
    layer = load_cascade(content_root() / "problems/mamba/mamba-370m.yaml")
    text = " ".join(screen(run_stitch(Request(layer, machine(), "optimal", figures=False), tmp_path)).split())
    document = json.loads((tmp_path / "groups.json").read_text())
    near, totals = document["nearly_as_fast"], document["totals"]
    assert f"{near['strategy']} takes" in text
    assert totals["seconds"] <= near["seconds"] <= 1.01 * totals["seconds"]
    assert sum(near["dram_words"].values()) < 0.8 * sum(totals["dram_words"].values())


def test_long_cascades_are_drawn_in_bands():
    from stitchloop.cascade.graph import figure_of
    from stitchloop.cascade.plots import LONGEST_SIDE, to_png

    picture = to_png(figure_of(read_cascade(chain(100))))
    width, height = (int.from_bytes(picture[at : at + 4], "big") for at in (16, 20))
    assert 300 < height < width < min(6000, LONGEST_SIDE)


def test_map_ends_on_a_long_cascade_and_claims_no_proof():
    from dataclasses import replace

    from stitchloop.cascade.map import map_cascade

    spec = replace(load_spec([content_root() / "arch/mambalaya.yaml"]), cascade=read_cascade(chain(90)))
    result = map_cascade(spec)
    assert not result.certificate.optimal
    assert "more than 40 Einsums" in result.certificate.reason
    for strategy in ("none", "ri", "full"):
        assert result.values[0] <= map_cascade(spec, strategy).values[0] * (1 + 1e-9)
