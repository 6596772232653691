"""A fusion group as LoopTree takes it: a list of Einsums with plain projections and a default fused mapping.

LoopTree knows neither functions nor state, reads no tensor at two places, expects one Einsum at the end of a group, and
counts a tensor apart for each Einsum that reads it from DRAM. So

- a merged node becomes one Einsum whose outputs (and weights) stand side by side, unless the group reads them;
- ``load_X`` brings an input in that several Einsums read, ``store_X`` takes a tensor out that the group also uses, and
  ``last`` reads all results of a group that has several: what ``last`` itself moves is left out of every count;
- a carried read ``H[b,i-1,d,n]`` becomes a read of the initial state; a lagged one ``TX[b,i-f,d]`` one of the current step.

What is lost on the way is listed in words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stitchloop.cascade.cascade import Cascade, State
from stitchloop.cascade.crossing import Crossing, group_crossing
from stitchloop.cascade.expression import Access, Binary, Equation, Reduce, walk
from stitchloop.cascade.group_export import SINK, Dimension, GroupExport, Step, reach
from stitchloop.cascade.merge import Node
from stitchloop.text import counted
from stitchloop.workload import Term


def export_group(cascade: Cascade, groups: Sequence[Sequence[Node]], position: int) -> GroupExport:
    """One group of a grouping as a list of LoopTree Einsums.

    Parameters
    ----------
    cascade : Cascade
    groups : sequence of sequences of Node
        All groups, because what a group must read and write depends on the others.
    position : int
        Which group.
    """
    nodes = tuple(groups[position])
    moved = group_crossing(cascade, [name for node in nodes for name in node])
    found = _Exporter(cascade, nodes, moved, halos=True).export()
    return found if _readers_agree(found) else _Exporter(cascade, nodes, moved, halos=False).export()


def _readers_agree(export: GroupExport) -> bool:
    """Whether the readers of each tensor reach equally far, as LoopTree needs to follow the dependence."""
    extents: dict[str, set[tuple[int, ...]]] = {}
    for step, sizes in zip(export.steps, export.sizes, strict=True):
        for name, dimensions in step.reads:
            reach_ = tuple(1 + sum(t.coefficient * (sizes[t.rank] - 1) for t in terms) for terms in dimensions)
            extents.setdefault(name, set()).add(reach_)
    return all(len(found) == 1 for found in extents.values())


class _Exporter:
    def __init__(self, cascade: Cascade, nodes: tuple[Node, ...], moved: Crossing, *, halos: bool) -> None:
        self.cascade, self.nodes, self.moved, self.halos = cascade, nodes, moved, halos
        self.notes: list[str] = []
        self.state: dict[str, int] = {}
        self.parts: dict[str, tuple[str, ...]] = {}
        self.weights: list[str] = []
        self.extra_sizes: dict[str, int] = {}
        self.own = {t for node in nodes for name in node for t in cascade.einsum(name).output_tensors}
        self.loop_of = {name: members for members in cascade.recurrences for name in members}
        self.read_here = {
            a.tensor for node in nodes for name in node for a in cascade.einsum(name).inputs if not self._closes_loop(name, a)
        }

    def export(self) -> GroupExport:
        steps = self._with_loads([step for node in self.nodes for step in self._steps(node)])
        steps, results = self._with_stores(steps)
        steps = self._with_sink(steps, results)
        missing = {t.tensor: t.words for t in self.moved.writes if t.kind == "state"}
        for name, words in missing.items():
            self.notes.append(f"the final state {name} leaves the chip: {counted(words, 'word')} that LoopTree does not count")
        sizes = self._sizes(steps)
        return GroupExport(
            self.cascade,
            self.nodes,
            tuple(steps),
            sizes,
            results,
            tuple(dict.fromkeys(self.weights)),
            self.state,
            self.parts,
            tuple(dict.fromkeys(self.notes)),
            missing,
        )

    # -- Einsums ----------------------------------------------------------------------------------------------------

    def _steps(self, node: Node) -> list[Step]:
        equations = [(name, equation) for name in node for equation in self.cascade.einsum(name).equations]
        if len(equations) > 1 and self._stands_together([equation for _, equation in equations]):
            return [self._joined(node, [equation for _, equation in equations])]
        several = {name for name, _ in equations if len(self.cascade.einsum(name).equations) > 1}
        return [
            self._step(f"{name}_{equation.output.tensor}" if name in several else name, (name,), equation)
            for name, equation in equations
        ]

    def _stands_together(self, equations: Sequence[Equation]) -> bool:
        """GEMMs of one shared operand with a weight each, whose results only leave the group."""
        shared = set.intersection(*(set(equation.inputs) for equation in equations))
        return (
            len(shared) == 1
            and all(equation.is_gemm and equation.output.tensor not in self.read_here for equation in equations)
            and all(self.cascade.tensor(a.tensor).producer is None for e in equations for a in e.inputs if a not in shared)
            and len({equation.reduced for equation in equations}) == 1
        )

    def _joined(self, node: Node, equations: Sequence[Equation]) -> Step:
        """One GEMM whose weights stand side by side along a rank of their own."""
        (shared,) = set.intersection(*(set(equation.inputs) for equation in equations))
        common = tuple(rank for rank in equations[0].output.ranks if rank in shared.ranks)
        reduced = equations[0].reduced
        rank = "and".join(dict.fromkeys("".join(r for r in e.output.ranks if r not in shared.ranks) for e in equations))
        rank = rank if rank not in self.cascade.sizes else f"{rank}s"
        self.extra_sizes[rank] = sum(self.cascade.volume(r for r in e.output.ranks if r not in common) for e in equations)
        output = self._fresh("_".join(equation.output.tensor for equation in equations))
        weights = [access.tensor for e in equations for access in e.inputs if access != shared]
        weight = self._fresh("_".join(weights))
        self.weights.append(weight)
        self.parts |= {output: tuple(e.output.tensor for e in equations), weight: tuple(weights)}
        self.notes.append(f"{output} and {weight} stand side by side along rank {rank}: {', '.join(node)} as one Einsum")
        own = (Term(rank),)
        return Step(
            "_".join(node),
            output,
            (*((Term(r),) for r in common), own),
            (self._read(shared), (weight, (*((Term(r),) for r in reduced), own))),
            node,
        )

    def _step(self, name: str, node: Node, equation: Equation) -> Step:
        reads: dict[str, tuple[Dimension, ...]] = {}
        for access in equation.inputs:
            read = self._carried(name, access) if self._closes_loop(node[0], access) else self._read(access)
            if read is None:
                continue
            tensor, dimensions = read
            if tensor in reads and reads[tensor] != dimensions:
                self.notes.append(f"{name} reads {tensor} at two places; LoopTree sees the first one only")
            reads.setdefault(tensor, dimensions)
            if tensor in self.cascade.weights:
                self.weights.append(tensor)
        self._note_operators(name, equation)
        return Step(
            name, equation.output.tensor, _or_one(tuple((Term(r),) for r in equation.output.ranks)), tuple(reads.items()), node
        )

    def _fresh(self, name: str) -> str:
        """The name, lengthened where a tensor of the cascade has it already."""
        taken = {tensor.name for tensor in self.cascade.tensors}
        while name in taken:
            name += "_"
        return name

    def _closes_loop(self, name: str, access: Access) -> bool:
        """A read of what earlier steps of this group's own recurrence wrote."""
        producer = self.cascade.tensor(access.tensor).producer
        recurrence = self.loop_of.get(name, frozenset())
        return access.tensor in self.own and producer in recurrence and self.cascade.is_carried(access)

    def _carried(self, name: str, access: Access) -> tuple[str, tuple[Dimension, ...]] | None:
        """The initial state in place of a carried one: it takes the same room and comes in once."""
        state = self.cascade.state(access.tensor)
        assert state is not None
        words = self.cascade.state_words(state)
        if not isinstance(state.initial, str):
            self.notes.append(f"{name} reads {access} of the step before: {words} words of state stay on chip beside the tiles")
            return None
        self.notes.append(f"{name} reads {access} of the step before: the initial state {state.initial} stands for it")
        self.state[state.initial] = words
        position = self.cascade.state_dimension(state)
        rest = [_terms(index.terms) for n, index in enumerate(access.indices) if n != position]
        if self.cascade.state_depth(state) > 1:
            lag = f"{state.rank}lag"
            self.extra_sizes[lag] = self.cascade.state_depth(state)
            rest.insert(position, (Term(lag),))
        return state.initial, _or_one(tuple(rest))

    def _read(self, access: Access) -> tuple[str, tuple[Dimension, ...]]:
        state = self.cascade.state(access.tensor)
        dimensions = []
        for position, index in enumerate(access.indices):
            terms = index.terms
            if state is not None and position == self.cascade.state_dimension(state) and index.plain_rank is None:
                self._note_lag(access, state)
                terms = tuple(term for term in terms if term.rank == state.rank)
            elif len(terms) > 1 and not self.halos:
                self.notes.append(
                    f"{access} is read without its halo along {terms[0].rank}: Einsums of the group reach differently far"
                )
                terms = terms[:1]
            elif any(term.coefficient < 0 for term in terms):
                self.notes.append(f"{access} runs backwards; LoopTree sees it run forwards")
            dimensions.append(_terms(terms))
        return access.tensor, _or_one(tuple(dimensions))

    def _note_lag(self, access: Access, state: State) -> None:
        if access.tensor not in self.own:
            self.notes.append(f"{access} is read as the current step of {state.rank}, which moves as many words")
            return
        lag = self.cascade.state_depth(state)
        step = self.cascade.words(access.tensor) // self.cascade.sizes[state.rank]
        steps = f"the {lag} steps before" if lag > 1 else "the step before"
        self.notes.append(
            f"{access} is read as the current step of {state.rank}; {steps}, {lag * step} words in all, stay on chip besides"
        )

    def _note_operators(self, name: str, equation: Equation) -> None:
        for function in dict.fromkeys(equation.functions):
            self.notes.append(f"{name}: the function {function} is not expressed; the Einsum counts as one operation a point")
        other = {node.operator for node in walk(equation.expression) if isinstance(node, Reduce)} - {"sum"}
        other |= {node.operator for node in walk(equation.expression) if isinstance(node, Binary)} - {"multiply"}
        if other:
            self.notes.append(f"{name}: LoopTree does not tell {', '.join(sorted(other))} from multiply and sum")

    # -- loads, stores, sink ----------------------------------------------------------------------------------------

    def _with_loads(self, steps: list[Step]) -> list[Step]:
        written = {step.output for step in steps}
        shapes: dict[str, list[tuple[Dimension, ...]]] = {}
        for step in steps:
            for name, dimensions in step.reads:
                shapes.setdefault(name, []).append(dimensions)
        loads: list[Step] = []
        for name, found in shapes.items():
            if name in written or len(found) == 1:
                continue
            here = self._fresh(f"{name}_here")
            plain = next((d for d in found if all(len(terms) == 1 for terms in d)), None)
            dimensions = plain or tuple((Term(f"{name}{n}"),) for n in range(len(found[0])))
            if plain is None:
                self.extra_sizes |= {f"{name}{n}": size for n, size in enumerate(self.cascade.shape(name))}
            loads.append(Step(f"load_{name}", here, dimensions, ((name, dimensions),)))
            self.notes.append(f"load_{name} brings {name} in once for the {len(found)} Einsums that read it")
            steps = [
                Step(s.name, s.output, s.dimensions, tuple((here if n == name else n, d) for n, d in s.reads), s.stands_for)
                for s in steps
            ]
        return loads + steps

    def _with_stores(self, steps: list[Step]) -> tuple[list[Step], tuple[str, ...]]:
        """A copy for each tensor that leaves and is read here too; and the names of all that leaves."""
        leaving = {t.tensor for t in self.moved.writes if t.kind != "state"}
        read = {name for step in steps for name, _ in step.reads}
        stores, results = [], []
        for step in steps:
            if not leaving & {step.output, *self.parts.get(step.output, ())}:
                continue
            if step.output not in read:
                results.append(step.output)
                continue
            out = self._fresh(f"{step.output}_out")
            stores.append(Step(f"store_{step.output}", out, step.dimensions, ((step.output, step.dimensions),)))
            results.append(out)
            self.parts[out] = (step.output,)
            self.notes.append(f"store_{step.output} takes {step.output} out, which the group also uses")
        return steps + stores, tuple(results)

    def _with_sink(self, steps: list[Step], results: Sequence[str]) -> list[Step]:
        read = {name for step in steps for name, _ in step.reads}
        ends = [step for step in steps if step.output not in read]
        if len(ends) == 1 and ends[0].output in results:
            return [*(step for step in steps if step is not ends[0]), *ends]
        common = [terms for terms in ends[0].dimensions if all(terms in step.dimensions for step in ends)]
        dimensions = tuple(common) or ends[0].dimensions
        self.notes.append(
            f"{SINK} reads {', '.join(s.output for s in ends)}, so that the group has one end; what it moves does not count"
        )
        return [
            *steps,
            Step(SINK, self._fresh(f"{SINK}_end"), dimensions, tuple((step.output, step.dimensions) for step in ends)),
        ]

    def _sizes(self, steps: Sequence[Step]) -> tuple[Mapping[str, int], ...]:
        """Rank sizes per step; a producer computes as far as its readers reach, padding included."""
        known = {**self.cascade.sizes, **self.extra_sizes, "one": 1}
        found = reach(steps, [{rank: known[rank] for rank in step.ranks} for step in steps], grow=True)
        for step, sizes in zip(steps, found, strict=True):
            for rank in step.ranks:
                if sizes[rank] > known[rank]:
                    self.notes.append(f"{step.name} computes {sizes[rank]} positions of {rank}, padding included")
        return found


def _terms(terms: Iterable[Term]) -> Dimension:
    found = tuple(Term(term.rank, abs(term.coefficient)) for term in terms)
    return found or (Term("one"),)


def _or_one(dimensions: tuple[Dimension, ...]) -> tuple[Dimension, ...]:
    return dimensions or ((Term("one"),),)
