"""From a list of Einsums to the shape of a fused chain: joint ranks, halos, batch ranks, and what is wrong with the input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stitchloop.errors import InputError, Place
from stitchloop.fused.shape import Index, Kind, Op, Operand, Shape, Structure
from stitchloop.text import counted
from stitchloop.workload import Einsum, Tensor, Term, Workload


def fault(einsum: Einsum | str, found: str, mend: str) -> InputError:
    name = einsum if isinstance(einsum, str) else einsum.name
    return InputError(Place(None, ("problem", name)), found, mend)


def chain_of(workload: Workload) -> tuple[Einsum, ...]:
    """The Einsums from the first producer to the head, each reading the output of the one before.

    Raises
    ------
    InputError
        Two producers of one tensor, a cycle, an intermediate tensor with several readers, Einsums that share none, sizes below 1,
        or an intermediate tensor with different shapes at its two ends.
    """
    producers: dict[str, Einsum] = {}
    for einsum in workload.einsums:
        _check_sizes(einsum)
        outputs = einsum.outputs
        if len(outputs) != 1:
            raise fault(
                einsum, f"{len(outputs)} output tensors", "each Einsum of a fused chain writes one tensor (read_write: true)"
            )
        name = outputs[0].name
        if name in producers:
            raise fault(einsum, f"tensor {name} is also produced by {producers[name].name}", "give each tensor one producer")
        producers[name] = einsum
    following = _followers(workload, producers)
    if len(workload.einsums) == 1:
        return workload.einsums
    starts = [e for e in workload.einsums if not any(t.name in producers for t in e.inputs)]
    if not starts:
        names = " -> ".join(_cycle(workload.einsums[0], following))
        raise fault(workload.einsums[0], f"a cycle: {names}", "an Einsum cannot read, even indirectly, what it writes")
    chains = [_follow(start, following) for start in starts]
    chain = max(chains, key=len)
    left = [e for e in workload.einsums if e not in chain]
    if left:
        raise _not_a_chain(left[0], producers, following)
    return tuple(chain)


def _check_sizes(einsum: Einsum) -> None:
    for rank, size in einsum.sizes.items():
        if size < 1:
            raise fault(einsum, f"rank {rank} has size {size}", "sizes are at least 1")


def _followers(workload: Workload, producers: dict[str, Einsum]) -> dict[str, Einsum]:
    """For each Einsum by name, the one that reads its output."""
    following: dict[str, Einsum] = {}
    for einsum in workload.einsums:
        for tensor in einsum.inputs:
            producer = producers.get(tensor.name)
            if producer is None:
                continue
            if producer.name in following and following[producer.name] is not einsum:
                first = following[producer.name].name
                raise fault(
                    einsum,
                    f"tensor {tensor.name} of {producer.name} is read by {first} and by {einsum.name}",
                    "a fused chain has one reader of each intermediate tensor; map the branches apart or use stitchloop stitch",
                )
            following[producer.name] = einsum
    return following


def _follow(start: Einsum, following: dict[str, Einsum]) -> list[Einsum]:
    chain = [start]
    while chain[-1].name in following:
        nxt = following[chain[-1].name]
        if nxt in chain:
            names = " -> ".join([*(e.name for e in chain[chain.index(nxt) :]), nxt.name])
            raise fault(nxt, f"a cycle: {names}", "an Einsum cannot read, even indirectly, what it writes")
        chain.append(nxt)
    return chain


def _cycle(start: Einsum, following: dict[str, Einsum]) -> list[str]:
    names = [start.name]
    while names[-1] in following:
        name = following[names[-1]].name
        if name in names:
            return [*names[names.index(name) :], name]
        names.append(name)
    return names


def _not_a_chain(einsum: Einsum, producers: dict[str, Einsum], following: dict[str, Einsum]) -> InputError:
    reads = ", ".join(t.name for t in einsum.inputs)
    if einsum.name not in following and not any(t.name in producers for t in einsum.inputs):
        return fault(
            einsum,
            f"its inputs ({reads}) are produced by no Einsum of the list and its output {einsum.outputs[0].name} is read by none",
            "name the shared intermediate tensor alike in both Einsums, or map this Einsum apart",
        )
    if einsum.name in following and following[einsum.name] is einsum:
        return fault(einsum, f"a cycle: it reads its own output {einsum.outputs[0].name}", "rename one of the two tensors")
    return fault(
        einsum,
        "it stands on a second branch that joins the chain",
        "a fused chain is a line, each Einsum reading one earlier output; map the branch apart or use stitchloop stitch",
    )


class _Joint:
    """Joint ranks as they are discovered from the head backwards."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.sizes: list[int] = []
        self.whole: set[int] = set()

    def add(self, name: str, size: int) -> int:
        taken = set(self.names)
        unique = name if name not in taken else next(f"{name}_{n}" for n in range(2, 10**6) if f"{name}_{n}" not in taken)
        self.names.append(unique)
        self.sizes.append(size)
        if size == 1:
            self.whole.add(len(self.names) - 1)
        return len(self.names) - 1


def shape_of(workload: Workload) -> Shape:
    """The shape of a chain of Einsums (or of a single one).

    Raises
    ------
    InputError
        As :func:`chain_of`; also where the two ends of an intermediate tensor disagree in rank count or sizes.
    """
    chain = chain_of(workload)
    joint = _Joint()
    ranges: list[dict[str, Index]] = [{} for _ in chain]
    for at in range(len(chain) - 1, -1, -1):
        einsum = chain[at]
        if at + 1 < len(chain):
            ranges[at] = _tied(einsum, chain[at + 1], ranges[at + 1])
        for rank, size in einsum.sizes.items():
            if rank not in ranges[at]:
                ranges[at][rank] = Index(joint.add(rank, size))
        _check_tied(einsum, ranges[at], joint)
        for window in _windows(einsum):
            joint.whole.add(ranges[at][window].rank)
    ops = tuple(_op(einsum, own, chain[:at]) for at, (einsum, own) in enumerate(zip(chain, ranges, strict=True)))
    shape = Shape(
        Structure(len(joint.names), frozenset(joint.whole), ops),
        tuple(joint.names),
        tuple(joint.sizes),
        tuple(einsum.name for einsum in chain),
        tuple({index.rank: name for name, index in own.items()} for own in ranges),
        tuple(tuple(t.name for t in (*einsum.inputs, *einsum.outputs)) for einsum in chain),
        workload=workload,
    )
    return canonical(_without_batch(shape))


def _main(terms: Sequence[Term], sizes: dict[str, int]) -> Term:
    """The rank of a sum that is cut to tiles: the longest; the others are windows."""
    return max(terms, key=lambda term: sizes[term.rank])


def _windows(einsum: Einsum) -> set[str]:
    found = set()
    for tensor in einsum.tensors:
        for terms in tensor.projection:
            if len(terms) > 1:
                found |= {term.rank for term in terms} - {_main(terms, einsum.sizes).rank}
    return found


def _along(einsum: Einsum, terms: Sequence[Term]) -> tuple[str, int, int]:
    """Main rank of one index expression, its stride, and the words that one point of it touches."""
    main = _main(terms, einsum.sizes)
    others = sum(abs(t.coefficient) * (einsum.sizes[t.rank] - 1) for t in terms if t is not main)
    return main.rank, abs(main.coefficient), 1 + others


def _tied(producer: Einsum, consumer: Einsum, consumer_ranges: dict[str, Index]) -> dict[str, Index]:
    """Ranges of the producer's output ranks for a tile of the head."""
    written, read = _both_ends(producer, consumer)
    ranges: dict[str, Index] = {}
    for at, (mine, theirs) in enumerate(zip(written.projection, read.projection, strict=True)):
        if len(mine) != 1 or mine[0].coefficient != 1 or mine[0].rank in ranges:
            raise fault(
                producer,
                f"output {written.name} is indexed by a sum or a repeated rank in place {at}",
                "write outputs by plain ranks",
            )
        own = mine[0].rank
        if not theirs:
            raise fault(
                consumer, f"{read.name} has no rank in place {at}", f"read {written.name} over rank {own} of {producer.name}"
            )
        rank, stride, window = _along(consumer, theirs)
        reach = stride * (consumer.sizes[rank] - 1) + window
        size = producer.sizes[own]
        if not reach <= size < reach + stride:
            raise fault(
                consumer,
                f"it reads {reach} words of {read.name} along place {at}, and {producer.name} writes {size} (rank {own})",
                "make the two sizes agree",
            )
        outer = consumer_ranges[rank]
        ranges[own] = Index(outer.rank, stride * outer.stride, stride * (outer.window - 1) + window)
    if len({index.rank for index in ranges.values()}) < len(ranges):
        raise fault(
            consumer, f"{read.name} is read along a diagonal", "index each place of an intermediate tensor by a rank of its own"
        )
    return ranges


def _both_ends(producer: Einsum, consumer: Einsum) -> tuple[Tensor, Tensor]:
    written = producer.outputs[0]
    read = consumer.tensor(written.name)
    if len(written.projection) != len(read.projection):
        here = counted(len(read.projection), "rank")
        raise fault(
            consumer,
            f"tensor {read.name} has {here} here and {len(written.projection)} in {producer.name}",
            "give an intermediate tensor the same ranks at both ends",
        )
    return written, read


def _check_tied(einsum: Einsum, own: dict[str, Index], joint: _Joint) -> None:
    """A window that is cut nowhere keeps its whole rank; nothing else may tie two ranks of one Einsum together."""
    seen: dict[int, str] = {}
    for name, index in own.items():
        if index.rank in seen:
            raise fault(
                einsum, f"ranks {seen[index.rank]} and {name} are the same rank further down the chain", "rename one of them"
            )
        seen[index.rank] = name


def _op(einsum: Einsum, own: dict[str, Index], before: Sequence[Einsum]) -> Op:
    made = {e.outputs[0].name for e in before}

    def operand(tensor: Tensor, kind: Kind) -> Operand:
        index: dict[int, Index] = {}
        windows: set[int] = set()
        for terms in tensor.projection:
            if terms:
                windows |= {own[t.rank].rank for t in terms}
                rank, stride, window = _along(einsum, terms)
                at = own[rank].rank
                if at in index:
                    raise fault(
                        einsum, f"{tensor.name} is read along a diagonal of rank {rank}", "index each place by a rank of its own"
                    )
                index[at] = Index(at, stride, window)
        return Operand(kind, tuple(sorted(index.values())), tuple(sorted(windows - set(index))))

    inputs = tuple(operand(t, "intermediate" if t.name in made else "input") for t in einsum.inputs)
    ranges = tuple(sorted(own.values()))
    return Op(ranges, (*inputs, operand(einsum.outputs[0], "output")))


def _without_batch(shape: Shape) -> Shape:
    """Take out the ranks that index every tensor of every Einsum one to one."""
    structure = shape.structure
    plain = [
        rank
        for rank in sorted(structure.looped)
        if all(
            rank in op.ranks and op.range_of[rank] == Index(rank) and all(Index(rank) in o.index for o in op.operands)
            for op in structure.ops
        )
        and any(op.reduced for op in structure.ops)
    ]
    if not plain:
        return shape
    gone = set(plain)
    ops = tuple(
        Op(
            tuple(i for i in op.ranges if i.rank not in gone),
            tuple(Operand(o.kind, tuple(i for i in o.index if i.rank not in gone), o.windows) for o in op.operands),
        )
        for op in structure.ops
    )
    return replace(
        shape,
        structure=Structure(structure.rank_count, structure.whole | gone, ops),
        batch=tuple(tuple(names[rank] for names in shape.own_names) for rank in plain),
        batch_sizes=tuple(shape.sizes[rank] for rank in plain),
    )


def canonical(shape: Shape) -> Shape:
    """Number ranks and order inputs by their roles, so that equal structures have equal keys; mark intermediate outputs."""
    structure = shape.structure
    used = sorted(set().union(*(op.ranks for op in structure.ops)))

    def role(rank: int) -> tuple[object, ...]:
        in_outputs = tuple(rank not in op.output.ranks for op in reversed(structure.ops))
        in_ops = tuple(rank not in op.ranks for op in reversed(structure.ops))
        return (rank in structure.whole, in_ops, in_outputs, rank)

    new = {rank: at for at, rank in enumerate(sorted(used, key=role))}

    def renamed(indices: tuple[Index, ...]) -> tuple[Index, ...]:
        return tuple(sorted(Index(new[i.rank], i.stride, i.window) for i in indices))

    ops, names = [], []
    for at, (op, old_names) in enumerate(zip(structure.ops, shape.tensor_names, strict=True)):
        operands = [Operand(o.kind, renamed(o.index), tuple(sorted(new[w] for w in o.windows))) for o in op.operands]
        output = (
            operands[-1] if at + 1 == len(structure.ops) else Operand("intermediate", operands[-1].index, operands[-1].windows)
        )
        paired = sorted(zip(operands[:-1], old_names), key=lambda pair: (pair[0].kind != "intermediate", pair[0].index))
        ops.append(Op(renamed(op.ranges), (*(o for o, _ in paired), output)))
        names.append((*(name for _, name in paired), old_names[-1]))
    order = sorted(used, key=lambda rank: new[rank])
    return replace(
        shape,
        structure=Structure(len(used), frozenset(new[r] for r in structure.whole if r in new), tuple(ops)),
        rank_names=tuple(shape.rank_names[r] for r in order),
        sizes=tuple(shape.sizes[r] for r in order),
        own_names=tuple({new[r]: n for r, n in names.items() if r in new} for names in shape.own_names),
        tensor_names=tuple(names),
    )
