"""Cascades of extended Einsums: ranks, tensors, equations and carried state, as every other module computes on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

from stitchloop.cascade.expression import Access, Equation, Index


@dataclass(frozen=True)
class Rank:
    """A rank and its size. An *iterative* rank runs in order, because some Einsum reads what an earlier step wrote.

    A *batch* rank indexes independent work: together with the iterative ranks it tells activations from weights.
    """

    name: str
    size: int
    iterative: bool = False
    batch: bool = False


@dataclass(frozen=True)
class CascadeTensor:
    """A tensor of the cascade.

    Attributes
    ----------
    name : str
    dimensions : tuple of Index
        One per tensor rank; its extent is the span of the index over the ranks (``p+r`` has ``P+R-1``).
    producer : str or None
        The Einsum that writes it; None for an input of the cascade.
    is_weight : bool
        An input that is the same for all the work that streams through the cascade.
    is_output : bool
        Leaves the cascade, whether or not an Einsum reads it as well.
    padding : float or None
        What a read outside the tensor gives; None where such a read is a fault (a carried state is no fault).
    """

    name: str
    dimensions: tuple[Index, ...]
    producer: str | None
    is_weight: bool = False
    is_output: bool = False
    padding: float | None = None

    @cached_property
    def ranks(self) -> tuple[str, ...]:
        """Ranks that index the tensor; for a plain tensor one per dimension."""
        return tuple(dict.fromkeys(rank for index in self.dimensions for rank in index.ranks))

    @property
    def is_intermediate(self) -> bool:
        return self.producer is not None and not self.is_output


@dataclass(frozen=True)
class State:
    """What a tensor carries along an iterative rank from one step to later ones.

    Attributes
    ----------
    tensor, rank : str
        ``H`` is read at ``i-1``: tensor H, rank I.
    initial : str or float
        Input tensor that holds the state before the first step, or a number that fills it.
    final : str or None
        Name under which the state after the last step leaves the cascade.
    """

    tensor: str
    rank: str
    initial: str | float = 0
    final: str | None = None


@dataclass(frozen=True)
class ExtendedEinsum:
    """One Einsum: an equation, or several that share their inputs (a multi-output Einsum)."""

    name: str
    equations: tuple[Equation, ...]

    @cached_property
    def ranks(self) -> tuple[str, ...]:
        """The iteration space, over all equations."""
        return tuple(dict.fromkeys(rank for equation in self.equations for rank in equation.ranks))

    @cached_property
    def reduced(self) -> tuple[str, ...]:
        """Ranks that some equation reduces."""
        return tuple(dict.fromkeys(rank for equation in self.equations for rank in equation.reduced))

    @cached_property
    def inputs(self) -> tuple[Access, ...]:
        return tuple(dict.fromkeys(access for equation in self.equations for access in equation.inputs))

    @cached_property
    def input_tensors(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(access.tensor for access in self.inputs))

    @cached_property
    def outputs(self) -> tuple[Access, ...]:
        return tuple(equation.output for equation in self.equations)

    @cached_property
    def output_tensors(self) -> tuple[str, ...]:
        return tuple(output.tensor for output in self.outputs)

    @cached_property
    def is_gemm(self) -> bool:
        """GEMM-like: every equation contracts two tensors that each bring an output rank of their own."""
        return all(equation.is_gemm for equation in self.equations)

    @cached_property
    def functions(self) -> tuple[str, ...]:
        return tuple(function for equation in self.equations for function in equation.functions)


@dataclass(frozen=True)
class Cascade:
    """A directed acyclic graph of Einsums, but for dependences through an iterative rank.

    Attributes
    ----------
    name : str
    ranks : tuple of Rank
    einsums : tuple of ExtendedEinsum
        In the order given, which respects the dependences.
    tensors : tuple of CascadeTensor
        In order of first appearance. The state tensors of ``states`` are not among them.
    states : tuple of State
    constants : tuple of (str, float)
    word_bits : int
        Size of a word of every tensor.
    layers : int
        How often the cascade is repeated one after the other.
    source : str or None
        File it was read from.
    """

    name: str
    ranks: tuple[Rank, ...]
    einsums: tuple[ExtendedEinsum, ...]
    tensors: tuple[CascadeTensor, ...]
    states: tuple[State, ...] = ()
    constants: tuple[tuple[str, float], ...] = ()
    word_bits: int = 16
    layers: int = 1
    source: str | None = field(default=None, compare=False)

    @cached_property
    def sizes(self) -> dict[str, int]:
        return {rank.name: rank.size for rank in self.ranks}

    @cached_property
    def iterative_ranks(self) -> tuple[str, ...]:
        return tuple(rank.name for rank in self.ranks if rank.iterative)

    @cached_property
    def _einsum_by_name(self) -> dict[str, ExtendedEinsum]:
        return {einsum.name: einsum for einsum in self.einsums}

    @cached_property
    def _tensor_by_name(self) -> dict[str, CascadeTensor]:
        return {tensor.name: tensor for tensor in self.tensors}

    @cached_property
    def _state_by_tensor(self) -> dict[str, State]:
        return {state.tensor: state for state in self.states}

    @cached_property
    def _state_by_name(self) -> dict[str, State]:
        """Initial and final names to their states."""
        return {name: state for state in self.states for name in (state.initial, state.final) if isinstance(name, str)}

    def einsum(self, name: str) -> ExtendedEinsum:
        return self._einsum_by_name[name]

    def tensor(self, name: str) -> CascadeTensor:
        return self._tensor_by_name[name]

    def state(self, tensor: str) -> State | None:
        """What the tensor carries along an iterative rank, if it does."""
        return self._state_by_tensor.get(tensor)

    @cached_property
    def weights(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.tensors if tensor.is_weight)

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.tensors if tensor.is_output)

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Inputs that are no weights (initial states excepted)."""
        return tuple(tensor.name for tensor in self.tensors if tensor.producer is None and not tensor.is_weight)

    def volume(self, ranks: Iterable[str]) -> int:
        """Product of the sizes of some ranks."""
        return prod(self.sizes[rank] for rank in ranks)

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Extent of the tensor along each of its dimensions, in words."""
        return tuple(index.bounds(self.sizes)[1] + 1 for index in self.tensor(tensor).dimensions)

    def words(self, tensor: str) -> int:
        """Words of the whole tensor; of a carried state too, by its initial or final name."""
        state = self._state_by_name.get(tensor)
        return self.state_words(state) if state is not None else prod(self.shape(tensor))

    def operations(self, einsum: str) -> int:
        """Points of the iteration spaces of the Einsum's equations."""
        return sum(self.volume(equation.ranks) for equation in self.einsum(einsum).equations)

    def state_depth(self, state: State) -> int:
        """How many steps back the tensor is read: 1 for ``i-1``, F-1 for ``i-f``."""
        position = self.state_dimension(state)
        reach = [
            -access.indices[position].bounds({**self.sizes, state.rank: 1})[0]
            for einsum in self.einsums
            for access in einsum.inputs
            if access.tensor == state.tensor
        ]
        return max(reach, default=0)

    def state_dimension(self, state: State) -> int:
        """Which dimension of the tensor the iterative rank indexes."""
        return [index.plain_rank for index in self.tensor(state.tensor).dimensions].index(state.rank)

    def state_shape(self, state: State) -> tuple[int, ...]:
        """Shape of the state: the tensor's, without the iterative rank when one step is carried, else its last steps."""
        shape, position, depth = list(self.shape(state.tensor)), self.state_dimension(state), self.state_depth(state)
        return (*shape[:position], *(() if depth == 1 else (depth,)), *shape[position + 1 :])

    def state_words(self, state: State) -> int:
        return prod(self.state_shape(state))

    def is_carried(self, access: Access) -> bool:
        """Whether the access reads only what earlier steps of an iterative rank wrote (``H[b,i-1,d,n]``)."""
        state = self.state(access.tensor)
        if state is None:
            return False
        index = access.indices[self.state_dimension(state)]
        return index.bounds({**self.sizes, state.rank: 1})[1] < 0

    @cached_property
    def consumers(self) -> dict[str, tuple[str, ...]]:
        """Tensor to the Einsums that read it (carried reads included), in order."""
        found: dict[str, list[str]] = {tensor.name: [] for tensor in self.tensors}
        for einsum in self.einsums:
            for tensor in einsum.input_tensors:
                found[tensor].append(einsum.name)
        return {tensor: tuple(names) for tensor, names in found.items()}

    @cached_property
    def producers(self) -> dict[str, frozenset[str]]:
        """Einsum to the Einsums whose output it reads, in the same step or carried from earlier ones (itself included)."""
        return {
            einsum.name: frozenset(
                producer for tensor in einsum.input_tensors if (producer := self.tensor(tensor).producer) is not None
            )
            for einsum in self.einsums
        }

    @cached_property
    def recurrences(self) -> tuple[frozenset[str], ...]:
        """Sets of Einsums that depend on one another through carried state (strongly connected components)."""
        if not self.states:
            return ()
        import networkx as nx

        graph: nx.DiGraph = nx.DiGraph()
        graph.add_nodes_from(self.producers)
        graph.add_edges_from((before, name) for name, names in self.producers.items() for before in names)
        components = (frozenset(component) for component in nx.strongly_connected_components(graph))
        return tuple(c for c in components if len(c) > 1 or graph.has_edge(*(*c, *c)))

    @cached_property
    def predecessors(self) -> dict[str, frozenset[str]]:
        """Einsum to the Einsums that must run before it.

        Those are the producers of what it reads; inside a recurrence, of what it reads in the same step.
        """
        recurrence_of = {name: members for members in self.recurrences for name in members}
        found: dict[str, frozenset[str]] = {}
        for einsum in self.einsums:
            now = {self.tensor(access.tensor).producer for access in einsum.inputs if not self.is_carried(access)}
            outside = self.producers[einsum.name] - recurrence_of.get(einsum.name, frozenset())
            found[einsum.name] = frozenset(n for n in now | outside if n is not None and n != einsum.name)
        return found

    @cached_property
    def carried_cycles(self) -> dict[str, frozenset[str]]:
        """Tensor of each state to the Einsums on a path from an earlier step of it to its next one."""
        return {state.tensor: self._carried_cycle(state.tensor) for state in self.states}

    def _carried_cycle(self, tensor: str) -> frozenset[str]:
        producer = self.tensor(tensor).producer
        before = {producer} if producer is not None else set()
        waiting = list(before)
        while waiting:
            for name in self.predecessors[waiting.pop()] - before:
                before.add(name)
                waiting.append(name)
        after = {
            name for name in before if any(a.tensor == tensor and self.is_carried(a) for a in self.einsum(name).inputs)
        }
        for einsum in self.einsums if after else ():
            if self.predecessors[einsum.name] & after:
                after.add(einsum.name)
        return frozenset(before & after)

    def with_sizes(self, sizes: Mapping[str, int]) -> Cascade:
        """The same cascade with other rank sizes: ``cascade.with_sizes({"I": 1})`` is one generated token."""
        unknown = set(sizes) - set(self.sizes)
        if unknown:
            raise ValueError(f"the cascade {self.name} has no rank {min(unknown)}")
        return replace(self, ranks=tuple(replace(rank, size=sizes.get(rank.name, rank.size)) for rank in self.ranks))

    def with_order(self, names: Iterable[str]) -> Cascade:
        """The same cascade with its Einsums in another order."""
        return replace(self, einsums=tuple(self.einsum(name) for name in names))
