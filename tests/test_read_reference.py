"""Real inputs: the public example designs in both forms, and everything that this project ships."""

from __future__ import annotations

import dataclasses
import gzip
import json
import time
from pathlib import Path

import pytest

from read_cases import REFERENCE
from stitchloop.constraints import LevelConstraints
from stitchloop.content import content_root
from stitchloop.read import Source, load_spec, require_energy
from stitchloop.spec import Spec

EXAMPLES = REFERENCE / "timeloop-examples"
needs_examples = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the public example designs are not here")
needs_reference = pytest.mark.skipif(not REFERENCE.is_dir(), reason="the reference figures are not here")
DESIGNS = ["eyeriss_like", "simple_weight_stationary"]


def transpiled(design: str, *more: Path) -> Spec:
    return load_spec([EXAMPLES / design / "recorded/parsed-processed-input.yaml", *more])


def as_written(design: str, *more: Path, frontend_compatible: bool = False) -> Spec:
    return load_spec([EXAMPLES / "top.yaml.jinja2", *more], {"architecture": design}, frontend_compatible=frontend_compatible)


@needs_examples
@pytest.mark.parametrize("design", DESIGNS)
def test_both_forms_of_a_design_give_the_same_architecture_and_problem(design: str) -> None:
    one, other = transpiled(design), as_written(design)
    assert one.architecture == other.architecture
    assert one.workload == other.workload
    assert one.options.metrics == other.options.metrics
    assert one.architecture is not None
    require_energy(one.architecture)


def comparable(constraints: LevelConstraints, trivial: set[str]) -> object:
    """Constraints without places, and without ranks that a permutation need not list."""
    temporal, spatial = constraints.temporal, constraints.spatial
    ones = {factor.rank for factor in temporal.factors if factor.value == 1}
    return (
        {(f.rank, f.relation, f.value) for f in temporal.factors},
        {(f.rank, f.relation, f.value) for f in spatial.factors},
        [rank for rank in temporal.permutation if rank not in trivial | ones],
        spatial.permutation,
        spatial.split,
        constraints.keep,
        constraints.bypass,
    )


@needs_examples
@pytest.mark.parametrize("design", DESIGNS)
def test_the_front_ends_reading_gives_the_constraints_that_the_front_end_wrote(design: str) -> None:
    one, other = transpiled(design), as_written(design, frontend_compatible=True)
    assert one.architecture is not None
    assert one.workload is not None
    trivial = {rank for rank, size in one.workload.einsum.sizes.items() if size == 1}
    for level, mine, theirs in zip(one.architecture.levels, one.constraints.levels, other.constraints.levels, strict=True):  # type: ignore[union-attr]
        if level.is_fanout:  # the front end writes out that a fan-out keeps nothing and holds no temporal loops
            theirs = dataclasses.replace(theirs, temporal=mine.temporal, bypass=mine.bypass)
        assert comparable(mine, trivial) == comparable(theirs, trivial), level.name


@needs_examples
def test_the_weight_stationary_design_is_told_apart_from_the_front_ends_reading() -> None:
    (sentence,) = as_written("simple_weight_stationary").warnings
    assert "puts C on X" in sentence
    assert "inter_PE_spatial" in sentence
    assert transpiled("simple_weight_stationary").warnings == ()


@needs_examples
@pytest.mark.parametrize("design", DESIGNS)
def test_recorded_mappings_are_read_alike_with_both_forms(design: str) -> None:
    recorded = EXAMPLES / design / "recorded/timeloop-mapper.map.yaml"
    one, other = transpiled(design, recorded).mapping, as_written(design, recorded).mapping
    assert one is not None
    assert one == other
    assert one.is_perfect


@needs_examples
def test_every_layer_shape_is_read_and_goes_into_every_design() -> None:
    shapes = sorted(EXAMPLES.glob("layer_shapes/*/*.yaml"))
    assert len(shapes) > 150
    for shape in shapes:
        workload = load_spec([shape]).workload
        assert workload is not None
        assert workload.einsum.computes > 0
    for shape in shapes[::40]:
        spec = load_spec([EXAMPLES / "top.yaml.jinja2"], {"architecture": DESIGNS[0], "problem": str(shape)})
        assert spec.constraints is not None


@needs_reference
def test_every_yaml_file_of_the_reference_is_read() -> None:
    files = [path for path in REFERENCE.rglob("*.yaml") if "layer_shapes" not in path.parts]
    assert files
    for path in files:
        load_spec([path])


@needs_reference
@pytest.mark.parametrize("name", ["cases", "fuzz"])
def test_reference_cases_are_read_fast_and_without_remarks(name: str) -> None:
    folder = REFERENCE / "single"
    with gzip.open(folder / f"{name}.jsonl.gz", "rt") as lines:
        cases = [json.loads(line) for line in lines][::7]
    seconds = []
    for case in cases:
        arch = case.get("arch_yaml") or (folder / case["arch"]).read_text()
        ert = case.get("ert_yaml") or (folder / case["ert"]).read_text()
        inputs = [Source("arch", arch), Source("ert", ert), {"problem": case["problem"]}, {"mapping": case["mapping"]}]
        started = time.process_time()
        spec = load_spec(inputs)
        seconds.append(time.process_time() - started)
        assert None not in (spec.architecture, spec.workload, spec.mapping, spec.constraints)
        assert spec.warnings == ()
        require_energy(spec.architecture)  # type: ignore[arg-type]
    assert sorted(seconds)[len(seconds) // 2] < 0.02


SHIPPED = sorted(path for folder in ("arch", "problems", "mappers") for path in (content_root() / folder).rglob("*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(content_root())))
def test_shipped_files_are_read_without_remarks(path: Path) -> None:
    spec = load_spec([path])
    assert spec.warnings == ()
    assert str(path) in spec.files


@pytest.mark.parametrize("name", ["nvdla_like", "tpu_like"])
def test_shipped_architectures_have_the_figures_they_state_and_tables_beside(name: str) -> None:
    found = load_spec([content_root() / "arch" / f"{name}.yaml"]).architecture
    assert found is not None
    require_energy(found)
    dram, buffer = found.levels[-1], found.levels[found.index("GlobalBuffer")]
    expected = {"nvdla_like": (4 * 32 * 32, 1 << 20, 60e9), "tpu_like": (4 * 128 * 128, 4 << 20, 128e9)}[name]
    assert buffer.capacity is not None
    assert dram.shared_bandwidth is not None
    bytes_per_word = dram.datawidth // 8
    bytes_per_second = dram.shared_bandwidth * bytes_per_word / found.cycle_seconds
    assert (found.compute.instances, buffer.capacity * bytes_per_word, bytes_per_second) == pytest.approx(expected)
    assert buffer.area_um2 is not None


def test_resnet18_has_all_its_distinct_convolutions() -> None:
    layers = {}
    for path in sorted((content_root() / "problems/resnet18").glob("*conv*.yaml")):
        workload = load_spec([path]).workload
        assert workload is not None
        einsum = workload.einsum
        stride = max(term.coefficient for terms in einsum.tensor("Inputs").projection for term in terms)
        layers[(*einsum.sizes.values(), stride)] = einsum.computes
    assert len(layers) == 11
    total = sum(computes * (4 if key[:2] == (64, 64) else 3 if key[0] == key[1] else 1) for key, computes in layers.items())
    assert total == 1_813_561_344, "multiply-accumulates of all convolutions, about 1.8 billion as published"
