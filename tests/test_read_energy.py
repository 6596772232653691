"""Energy and area tables, and the order in which their sources are asked."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest
import yaml

from read_cases import ARCHITECTURE, complaint, spec_of
from stitchloop.architecture import Architecture
from stitchloop.errors import InputError
from stitchloop.read import energy as energy_module
from stitchloop.read import load_spec, require_energy
from stitchloop.read.tables import component_of

ERT = """
ERT:
  version: 0.4
  tables:
  - name: system_top_level.DRAM[1..1]
    actions: [{name: read, energy: 512.0}, {name: write, energy: 500}, {name: update, energy: 480.0}, {name: leak, energy: 0}]
  - name: system_top_level.GLB[1..1]
    actions: [{name: read, energy: 2.5, arguments: {data_delta: 0}}, {name: read, energy: 3.5}, {name: leak, energy: 0.25}]
  - name: system_top_level.RF[1..8]
    actions: [{name: read, energy: 0.5}, {name: write, energy: 0.25}]
  - name: A.B.MAC[1..16]
    actions: [{name: compute, energy: 3.275}, {name: leak, energy: 0.1}]
"""
ART = "ART: {version: 0.4, tables: [{name: 's.GLB[1..1]', area: 100.0}, {name: 's.MAC[1..16]', area: 5}]}"


@pytest.fixture(autouse=True)
def _no_accelergy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy_module, "accelergy_command", lambda: None)


def architecture(*texts: str) -> Architecture:
    found = spec_of(ARCHITECTURE, *texts).architecture
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "component"),
    [
        ("system_top_level.GLB[1..4]", "GLB"),
        ("A.B.RF[1..256]", "RF"),
        ("A.B[1..2].RF[3]", "RF"),
        ("GLB", "GLB"),
        ("system.GLB", "GLB"),
    ],
)
def test_components_are_the_last_part_of_a_tables_name(name: str, component: str) -> None:
    assert component_of(name) == component


def test_energies_and_areas_are_taken_from_the_input() -> None:
    found = architecture(ERT, ART)
    dram, glb, rf = (found.levels[found.index(name)] for name in ("DRAM", "GLB", "RF"))
    assert (dram.energy.read, dram.energy.write, dram.energy.update, dram.energy.vector_access) == (512, 500, 480, 512)
    assert (glb.energy.read, glb.energy.leak) == (3.5, 0.25), "the most expensive entry of an action counts"
    assert (rf.energy.read, rf.energy.write, rf.energy.update) == (0.5, 0.25, 0.25), "an update costs a write"
    assert (found.compute.energy.compute, found.compute.energy.leak) == (3.275, 0.1)
    assert (glb.area_um2, found.compute.area_um2, rf.area_um2) == (100, 5, None)
    assert glb.energy.source == "ERT in input1.yaml"
    require_energy(found)


def test_an_action_that_is_missing_costs_the_most_expensive_one() -> None:
    assert architecture(ERT).levels[3].energy.write == 3.5


def test_tables_of_version_0_2_are_read() -> None:
    text = "ERT: {version: 0.2, tables: {s.GLB: {read: {energy: 2}, write: [{arguments: {a: 0}, energy: 1}, {energy: 4}]}}}"
    energy = architecture(text).levels[3].energy
    assert (energy.read, energy.write) == (2, 4)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("ERT: {tables: [{name: s.GLB, actions: [{name: read, energy: -1}]}]}", "at least 0"),
        ("ERT: {tables: [{name: s.GLB, actions: [{name: read, energy: lots}]}]}", "no value"),
        ("ERT: {tables: [{name: s.GLB, actions: [{energy: 1}]}]}", "no 'name'"),
        ("ERT: {tables: [{actions: []}]}", "no 'name'"),
        ("ERT: {tables: 3}", "a list is needed"),
        ("ERT: {tables: [{name: s.GLB, actions: []}, {name: t.GLB, actions: []}]}", "second energy table"),
        ("ART: {tables: [{name: s.GLB}]}", "no 'area'"),
    ],
)
def test_faulty_tables_are_refused(text: str, part: str) -> None:
    assert part in str(complaint(ARCHITECTURE, text))


def test_without_a_table_the_three_sources_are_named_when_energies_are_needed() -> None:
    found = architecture()
    assert {level.energy.source for level in found.levels} == {"none"}
    with pytest.raises(InputError) as caught:
        require_energy(found)
    for part in ("ERT file", "Accelergy", "beside the architecture"):
        assert part in str(caught.value)


def test_a_table_that_forgets_a_component_is_named() -> None:
    text = ERT.replace("system_top_level.RF", "system_top_level.Register")
    with pytest.raises(InputError, match="no energies for RF"):
        require_energy(architecture(text))


@pytest.mark.parametrize("name", ["chip.ERT.yaml", "chip/ERT.yaml", "ERT.yaml", "recorded/timeloop-mapper.ERT.yaml"])
def test_tables_beside_the_architecture_are_found(tmp_path: Path, name: str) -> None:
    (tmp_path / "chip.yaml").write_text(ARCHITECTURE)
    ert = tmp_path / name
    ert.parent.mkdir(exist_ok=True)
    ert.write_text(ERT)
    ert.with_name(ert.name.replace("ERT", "ART")).write_text(ART)
    found = load_spec([tmp_path / "chip.yaml"]).architecture
    assert found is not None
    require_energy(found)
    assert found.levels[3].area_um2 == 100
    assert name in found.levels[3].energy.source


def test_a_table_of_another_architecture_beside_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "chip.yaml").write_text(ARCHITECTURE)
    (tmp_path / "ERT.yaml").write_text(ERT.replace("RF", "Register"))
    found = load_spec([tmp_path / "chip.yaml"]).architecture
    assert found is not None
    assert found.levels[3].energy.source == "none"


FAKE = """#!{python}
import pathlib, sys
folder = pathlib.Path(sys.argv[sys.argv.index("-o") + 1])
(folder / "ERT.yaml").write_text({ert!r})
(folder / "ART.yaml").write_text({art!r})
pathlib.Path({seen!r}).write_text(pathlib.Path(sys.argv[1]).read_text())
"""


def fake(tmp_path: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a program called accelergy, first on the path. Returns where it leaves what it was given."""
    folder, seen = tmp_path / "bin", tmp_path / "seen.yaml"
    folder.mkdir()
    program = folder / "accelergy"
    program.write_text(script.format(python=sys.executable, ert=ERT, art=ART, seen=str(seen)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.undo()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return seen


def test_accelergy_is_asked_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = fake(tmp_path, FAKE, monkeypatch)
    found = architecture("components: {version: 0.4, classes: [{name: intmac, attributes: {width: must_specify}}]}")
    require_energy(found)
    assert (found.levels[3].energy.read, found.levels[3].area_um2) == (3.5, 100)
    assert found.levels[3].energy.source == "Accelergy"
    given = yaml.safe_load(seen.read_text())
    (tree,) = given["architecture"]["subtree"]
    assert [local["name"] for local in tree["local"]] == ["DRAM[1..1]", "GLB[1..1]", "RF[1..8]", "MAC[1..16]"]
    assert tree["local"][1]["attributes"]["technology"] == "45nm"
    assert given["compound_components"]["classes"][0]["name"] == "intmac"
    assert tree["attributes"]["global_cycle_seconds"] == 2e-9, "Accelergy insists on it"
    assert 'technology: "45nm"' in seen.read_text(), "Accelergy takes words without quotes for expressions"
    assert "width: must_specify" in seen.read_text(), "and those of compound components may be some"


def test_a_table_in_the_input_spares_accelergy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = fake(tmp_path, FAKE, monkeypatch)
    assert architecture(ERT).levels[3].energy.source == "ERT in input1.yaml"
    assert not seen.exists()


def test_an_accelergy_that_fails_gives_way_to_the_table_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(tmp_path, "#!{python}\nraise SystemExit('no estimator for SRAM')\n", monkeypatch)
    (tmp_path / "chip.yaml").write_text(ARCHITECTURE)
    (tmp_path / "chip.ERT.yaml").write_text(ERT)
    spec = load_spec([tmp_path / "chip.yaml"])
    assert spec.architecture is not None
    require_energy(spec.architecture)
    assert any("no estimator for SRAM" in sentence for sentence in spec.warnings)
