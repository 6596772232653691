"""What every storage node holds in every step, element by element, and what that needs of each memory."""

from __future__ import annotations

from collections import defaultdict

from stitchloop.fused.stepping import Index, Point, Timeline, elements_of, split
from stitchloop.fused.structure import Address, Path, StoragePoint
from stitchloop.fused.tree import Branch, Node, Storage
from stitchloop.workload import Tensor

Blocks = dict[tuple[Index, Index], set[Point]]
"""Elements by the temporal step of a node and by unit."""


class Holding:
    """Blocks of every storage node: ``blocks[address, tensor, Einsum]``."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline, self.structure = timeline, timeline.structure
        self.blocks: dict[tuple[Address, str, str], Blocks] = {}
        for path in self.structure.paths.values():
            for tensor in path.einsum.tensors:
                for point in path.storages_of(tensor.name):
                    self.blocks[point.address, tensor.name, path.einsum.name] = self._blocks(path, tensor, point)

    def _blocks(self, path: Path, tensor: Tensor, point: StoragePoint) -> Blocks:
        """What each unit of a node holds of a tensor for one Einsum, by temporal step and unit."""
        units = self.timeline.units(path, point, tensor.name)
        blocks: Blocks = defaultdict(set)
        for index, points in self.timeline.steps[path.einsum.name].items():
            blocks[split(path, index, point.depth, units)] |= elements_of(path, tensor, points)
        return blocks

    def capacity(self) -> dict[int, int]:
        """Words that a unit of each target needs, every block at its largest; DRAM (0) all that is accessed."""
        needed = {t: self._needed(t, self.structure.mapping.nodes, ()) for t in self.structure.mapping.targets if t}
        if 0 in self.structure.mapping.targets:
            nodes = [node for _, node in self.structure.mapping.walk if isinstance(node, Storage) and node.target == 0]
            needed[0] = sum(self._touched(name) for name in {name for node in nodes for name in node.tensors})
        return needed

    def varying(self) -> frozenset[int]:
        """Targets other than DRAM with blocks of different sizes."""
        varies = set()
        for path in self.structure.paths.values():
            for point in path.storages:
                for (address, _, _), blocks in self.blocks.items():
                    if address == point.address and len({len(block) for block in blocks.values()}) > 1:
                        varies.add(point.node.target)
        return frozenset(varies - {0})

    def _touched(self, name: str) -> int:
        counts = []
        for path in self.structure.paths.values():
            for tensor in path.einsum.tensors:
                if tensor.name == name:
                    steps = self.timeline.steps[path.einsum.name].values()
                    counts.append(len(set().union(*(elements_of(path, tensor, points) for points in steps))))
        return max(counts)

    def _together(self, address: Address, name: str) -> dict[tuple[Index, Index], int]:
        """Words of a tensor at a node by step and unit; by LoopTree, of the Einsum that needs most of it."""
        words: dict[tuple[Index, Index], int] = {}
        united: dict[tuple[Index, Index], set[Point]] = defaultdict(set)
        for (at, tensor, _), blocks in self.blocks.items():
            if at == address and tensor == name:
                for key, block in blocks.items():
                    united[key] |= block
                    size = len(united[key]) if self.timeline.rules.unite_readers else len(block)
                    words[key] = max(words.get(key, 0), size)
        return words

    def _needed(self, target: int, nodes: tuple[Node, ...], address: Address) -> int:
        words = 0
        for at, node in enumerate(nodes):
            here = (*address, at)
            if isinstance(node, Storage) and node.target == target:
                words += sum(max(self._together(here, name).values(), default=0) for name in node.tensors)
            elif isinstance(node, Branch):
                inside = [self._needed(target, branch, (*here, index)) for index, branch in enumerate(node.branches)]
                words += max(inside) if node.kind == "sequential" else sum(inside)
        return words

    def peak(self) -> dict[int, int]:
        """The most words that a unit of each target holds while some Einsum computes, with what runs beside it in a pipeline."""
        peak: dict[int, int] = defaultdict(int)
        sizes = {
            (address, name): self._together(address, name)
            for address, node in self.structure.mapping.walk
            if isinstance(node, Storage)
            for name in node.tensors
        }
        for path in self.structure.paths.values():
            beside = self._beside(path)
            for index in self.timeline.steps[path.einsum.name]:
                words: dict[int, int] = defaultdict(int, beside)
                for point in path.storages:
                    for name in point.node.tensors:
                        key = split(path, index, point.depth, self.timeline.units(path, point, name))
                        words[point.node.target] += sizes[point.address, name].get(key, 0)
                for target, held in words.items():
                    peak[target] = max(peak[target], held)
        return {target: held for target, held in peak.items() if target}

    def _beside(self, path: Path) -> dict[int, int]:
        """What branches that run at the same time in a pipeline may hold."""
        words: dict[int, int] = defaultdict(int)
        for branch in path.branches:
            if branch.kind == "pipeline":
                node = next(node for address, node in self.structure.mapping.walk if address == branch.address)
                assert isinstance(node, Branch)
                for at, nodes in enumerate(node.branches):
                    for target in self.structure.mapping.targets if at != branch.index else ():
                        words[target] += self._needed(target, nodes, (*branch.address, at))
        return words
