"""Random workloads and random LoopTree trees that map them, for tests of the fused reference model."""

from __future__ import annotations

import itertools
from random import Random

from stitchloop.fused.tree import Branch, Compute, FusedMapping, Node, Spatial, Storage, Temporal
from stitchloop.workload import Einsum, Tensor, Term, Workload


def tensor(name: str, *dimensions: str, output: bool = False) -> Tensor:
    """``tensor('F', 'C', '2*P+R')``."""
    projection = []
    for text in dimensions:
        terms = []
        for term in text.split("+"):
            *coefficient, rank = term.split("*")
            terms.append(Term(rank, int(coefficient[0]) if coefficient else 1))
        projection.append(tuple(terms))
    return Tensor(name, tuple(projection), output)


def einsum(name: str, sizes: dict[str, int], *tensors: Tensor) -> Einsum:
    return Einsum(name, tuple(sizes), tuple(sizes.values()), tensors)


def gemm_pair(i: int, k: int, l: int, j: int) -> Workload:  # noqa: E741
    producer = einsum(
        "Producer",
        {"I1": i, "K1": k, "L1": l},
        tensor("A", "I1", "K1"),
        tensor("B", "K1", "L1"),
        tensor("S", "I1", "L1", output=True),
    )
    consumer = einsum(
        "Consumer",
        {"I2": i, "L2": l, "J2": j},
        tensor("S", "I2", "L2"),
        tensor("D", "L2", "J2"),
        tensor("E", "I2", "J2", output=True),
    )
    return Workload((producer, consumer))


def gemm_chain(m: int, *widths: int) -> Workload:
    """Layers X0 -> X1 -> ... of ``m`` rows and the given widths."""
    einsums = []
    for n, (rows, columns) in enumerate(itertools.pairwise(widths), 1):
        ranks = {f"M{n}": m, f"R{n}": rows, f"C{n}": columns}
        row, reduced, column = ranks
        out = tensor(f"X{n}", row, column, output=True)
        einsums.append(einsum(f"Fc{n}", ranks, tensor(f"X{n - 1}", row, reduced), tensor(f"W{n}", reduced, column), out))
    return Workload(tuple(einsums))


def conv_chain(p: int, windows: tuple[int, ...], channels: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Workload:
    """One-dimensional convolutions whose last one has ``p`` output points; windows and strides first layer first."""
    strides = strides or (1,) * len(windows)
    sizes = [p]
    for window, stride in reversed(list(zip(windows[1:], strides[1:], strict=True))):
        sizes.insert(0, stride * (sizes[0] - 1) + window)
    einsums = []
    for n, (points, window, stride) in enumerate(zip(sizes, windows, strides, strict=True), 1):
        ranks = {f"P{n}": points, f"R{n}": window, f"C{n}": channels[n - 1], f"M{n}": channels[n]}
        at, tap, c, m = ranks
        out = tensor(f"F{n}", m, at, output=True)
        einsums.append(einsum(f"Conv{n}", ranks, tensor(f"F{n - 1}", c, f"{stride}*{at}+{tap}"), tensor(f"W{n}", m, c, tap), out))
    return Workload(tuple(einsums))


def conv_pair_2d(p: int, q: int, window: tuple[int, int], channels: tuple[int, int, int], stride: int = 1) -> Workload:
    """Two two-dimensional convolutions, the first with a window of 1."""
    rows, columns = (stride * (size - 1) + width for size, width in zip((p, q), window, strict=True))
    c, m, n = channels
    first = einsum(
        "Conv1",
        {"P1": rows, "Q1": columns, "C1": c, "M1": m},
        tensor("F0", "C1", "P1", "Q1"),
        tensor("W1", "M1", "C1"),
        tensor("F1", "M1", "P1", "Q1", output=True),
    )
    second = einsum(
        "Conv2",
        {"P2": p, "Q2": q, "R2": window[0], "S2": window[1], "M2": m, "N2": n},
        tensor("F1", "M2", f"{stride}*P2+R2", f"{stride}*Q2+S2"),
        tensor("W2", "N2", "M2", "R2", "S2"),
        tensor("F2", "N2", "P2", "Q2", output=True),
    )
    return Workload((first, second))


def elementwise_middle(i: int, k: int, l: int, j: int) -> Workload:  # noqa: E741
    pair = gemm_pair(i, k, l, j)
    middle = einsum(
        "Middle", {"I3": i, "L3": l}, tensor("S", "I3", "L3"), tensor("G", "L3"), tensor("Q", "I3", "L3", output=True)
    )
    consumer = einsum("Consumer", pair.einsums[1].sizes, tensor("Q", "I2", "L2"), *pair.einsums[1].tensors[1:])
    return Workload((pair.einsums[0], middle, consumer))


def two_readers(i: int, k: int, l: int) -> Workload:  # noqa: E741
    """S is read by two Einsums, of which the second reads the first's output too."""
    first = einsum(
        "Make",
        {"I1": i, "K1": k, "L1": l},
        tensor("A", "I1", "K1"),
        tensor("B", "K1", "L1"),
        tensor("S", "I1", "L1", output=True),
    )
    scale = einsum("Scale", {"I2": i, "L2": l}, tensor("S", "I2", "L2"), tensor("T", "I2", "L2", output=True))
    add = einsum(
        "Add", {"I3": i, "L3": l}, tensor("S", "I3", "L3"), tensor("T", "I3", "L3"), tensor("E", "I3", "L3", output=True)
    )
    return Workload((first, scale, add))


def residual_conv(p: int, window: int, channels: int, k: int, stride: int = 1) -> Workload:
    """F1 is read by a convolution with a halo and by the addition after it, which reads it at the convolution's points."""
    rows = stride * (p - 1) + window
    first = einsum(
        "First", {"P1": rows, "C1": k, "M1": channels},
        tensor("F0", "C1", "P1"), tensor("W1", "M1", "C1"), tensor("F1", "M1", "P1", output=True),
    )  # fmt: skip
    conv = einsum(
        "Conv", {"P2": p, "R2": window, "M2": channels, "N2": channels},
        tensor("F1", "M2", f"{stride}*P2+R2"), tensor("W2", "N2", "M2", "R2"), tensor("F2", "N2", "P2", output=True),
    )  # fmt: skip
    add = einsum(
        "Add", {"P3": p, "N3": channels},
        tensor("F1", "N3", "P3"), tensor("F2", "N3", "P3"), tensor("F3", "N3", "P3", output=True),
    )  # fmt: skip
    return Workload((first, conv, add))


def common_input(i: int, k: int, l: int) -> Workload:  # noqa: E741
    """Both Einsums read X."""
    first = einsum(
        "Weigh",
        {"I1": i, "K1": k, "L1": l},
        tensor("X", "I1", "K1"),
        tensor("B", "K1", "L1"),
        tensor("S", "I1", "L1", output=True),
    )
    second = einsum(
        "Apply",
        {"I2": i, "L2": l, "K2": k},
        tensor("S", "I2", "L2"),
        tensor("X", "I2", "K2"),
        tensor("E", "L2", "K2", output=True),
    )
    return Workload((first, second))


def random_workload(random: Random) -> Workload:
    """A small workload of one of the families above."""
    few = lambda: random.randint(1, 5)  # noqa: E731
    kind = random.choice(
        ["pair", "pair", "chain", "conv", "conv", "conv3", "conv2d", "elementwise", "readers", "residual", "common"]
    )
    match kind:
        case "pair":
            return gemm_pair(few(), few(), few(), few())
        case "chain":
            return gemm_chain(few(), few(), few(), few(), few())
        case "conv":
            windows, strides = (random.randint(1, 3), random.randint(1, 3)), (random.choice([1, 1, 2]), random.choice([1, 1, 2]))
            return conv_chain(
                random.randint(2, 7), windows, (random.randint(1, 2), random.randint(1, 3), random.randint(1, 2)), strides
            )
        case "conv3":
            return conv_chain(random.randint(2, 6), tuple(random.randint(1, 3) for _ in range(3)), (1, 2, 1, 2))
        case "conv2d":
            window = (random.randint(1, 3), random.randint(1, 3))
            return conv_pair_2d(
                random.randint(2, 4), random.randint(2, 4), window, (1, 2, random.randint(1, 2)), random.choice([1, 1, 2])
            )
        case "elementwise":
            return elementwise_middle(few(), few(), few(), few())
        case "common":
            return common_input(few(), few(), few())
        case "residual":
            return residual_conv(random.randint(2, 6), random.randint(1, 3), random.randint(1, 2), 2, random.choice([1, 1, 2]))
        case _:
            return two_readers(few(), few(), few())


def random_tree(random: Random, workload: Workload, *, spatial: float = 0.0, levels: int = 1) -> FusedMapping:
    """A random tree over a chain of Einsums, the last of which is the head."""
    return _Grower(random, workload, spatial, levels).tree()


class _Grower:
    def __init__(self, random: Random, workload: Workload, spatial: float, levels: int) -> None:
        self.random, self.workload, self.spatial, self.levels = random, workload, spatial, levels
        self.made = {tensor.name for e in workload.einsums for tensor in e.outputs}
        self.read = {tensor.name for e in workload.einsums for tensor in e.inputs}

    def tree(self) -> FusedMapping:
        outer = sorted({t.name for e in self.workload.einsums for t in e.tensors} - (self.made & self.read))
        spilled = [name for name in sorted(self.made & self.read) if self.random.random() < 0.1]
        stored = dict.fromkeys((*outer, *spilled), 0)
        top: tuple[Node, ...] = (Storage(0, tuple(stored)),)
        return FusedMapping(top + self._sequence(self.workload.einsums, stored))

    def _sequence(self, group: tuple[Einsum, ...], stored: dict[str, int]) -> tuple[Node, ...]:
        """Loops of the group's head, storage, and what follows: the leaf or a branch."""
        random, head = self.random, group[-1]
        stored = dict(stored)
        nodes: list[Node] = []
        tile = dict(head.sizes)
        names = sorted({tensor.name for e in group for tensor in e.tensors})
        inner = {t.name for e in group for t in e.outputs} & {t.name for e in group for t in e.inputs}
        units = 0
        for _ in range(random.randint(0, 3)):
            nodes += self._some_storage(names, stored, 0.25)
            rank = random.choice(head.ranks)
            if units < 2 and random.random() < self.spatial:
                nodes.append(Spatial(rank, random.randint(max(1, tile[rank] // 3), tile[rank])))
                units += 1
            else:
                nodes.append(Temporal(rank, random.randint(1, tile[rank])))
            tile[rank] = nodes[-1].tile_shape
        if len(group) == 1:
            nodes += self._some_storage(names, stored, 1.0)
            if self.levels > 1 and random.random() < 0.7:
                nodes += self._deeper(names, stored)
            return (*nodes, Compute(head.name, self.levels + 1))
        must = {name for name in inner if name not in stored}
        cuts = [(at,) for at in range(1, len(group)) if self._closed(group[:at]) and self._closed(group[at:])]
        cut = random.choice([*cuts, tuple(range(1, len(group)))])
        parts = [group[a:b] for a, b in zip((0, *cut), (*cut, len(group)), strict=True)]
        within = {t.name for part in parts for t in self._inside(part)}
        must -= within
        nodes += [self._store(name, stored, 1) for name in sorted(must)]
        nodes += self._some_storage([name for name in names if name not in within], stored, 0.25)
        kind = random.choice(["sequential", "sequential", "pipeline"])
        return (*nodes, Branch(kind, tuple(self._sequence(part, stored) for part in parts)))

    def _closed(self, part: tuple[Einsum, ...]) -> bool:
        """Whether only the part's last Einsum is read from outside, so that it is the head."""
        inside = {t.name for e in part for t in e.inputs}
        outside = {t.name for e in self.workload.einsums if e not in part for t in e.inputs}
        return all(t.name in inside and t.name not in outside for e in part[:-1] for t in e.outputs)

    @staticmethod
    def _inside(part: tuple[Einsum, ...]) -> list[Tensor]:
        return [t for e in part for t in e.outputs if any(t.name == other.name for x in part for other in x.inputs)]

    def _store(self, name: str, stored: dict[str, int], target: int) -> Storage:
        stored[name] = target
        return Storage(target, (name,), self.random.random() > 0.07)

    def _some_storage(self, names: list[str], stored: dict[str, int], chance: float) -> list[Node]:
        chosen = [n for n in names if stored.get(n, -1 if chance < 1 else 0) == 0 and self.random.random() < chance]
        self.random.shuffle(chosen)
        return [self._store(name, stored, 1) for name in chosen]

    def _deeper(self, names: list[str], stored: dict[str, int]) -> list[Node]:
        return [self._store(name, stored, 2) for name in names if stored.get(name) == 1 and self.random.random() < 0.6]
