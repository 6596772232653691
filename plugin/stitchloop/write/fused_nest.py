"""A fused mapping as a loop nest that a person can read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stitchloop.fused.check import checked
from stitchloop.fused.reference.shapes import Shapes, shapes
from stitchloop.fused.structure import Address, Structure
from stitchloop.fused.tree import Branch, Compute, FusedMapping, Node, Spatial, Storage
from stitchloop.workload import Tensor, Workload

HEADINGS = {
    "sequential": "one after the other, sharing the space:",
    "pipeline": "side by side in a pipeline, each in its own space:",
}


def format_loop_nest(workload: Workload, mapping: FusedMapping, names: Mapping[int, str] | None = None) -> str:
    """Draw a tree as an indented loop nest.

    Parameters
    ----------
    names : mapping of int to str, optional
        Names of the targets; without a name a target is ``DRAM`` (0) or ``buffer 1`` and so on.

    Examples
    --------
    ::

        DRAM holds A[16, 2], B[2, 32], D[32, 6], E[16, 6]
        for I2 in tiles of 8 (2)
        | buffer 1 holds S[8, 32]
        | one after the other, sharing the space:
        | +- for K1 in tiles of 1 (2)
        | |  | compute Producer: S[I1, L1] += A[I1, K1] * B[K1, L1]
        | +- compute Consumer: E[I2, J2] += S[I2, L2] * D[L2, J2]
    """
    structure = checked(workload, mapping)
    return (
        "\n".join(_Drawing(structure, shapes(structure), names or {}).lines(mapping.nodes, (), tuple(structure.paths), 0)) + "\n"
    )


class _Drawing:
    def __init__(self, structure: Structure, sizes: Shapes, names: Mapping[int, str]) -> None:
        self.structure, self.sizes, self.names = structure, sizes, names

    def lines(self, nodes: tuple[Node, ...], address: Address, group: tuple[str, ...], level: int) -> Iterator[str]:
        """The lines of a sequence of nodes below ``level`` loops."""
        indent = ""
        for at, node in enumerate(nodes):
            here = (*address, at)
            if isinstance(node, Storage):
                kept = "" if node.exploits_reuse else ", keeping nothing from one block to the next"
                yield f"{indent}{self._target(node.target)} holds {', '.join(self._block(here, t) for t in node.tensors)}{kept}"
            elif isinstance(node, Branch):
                yield indent + HEADINGS[node.kind]
                for index, branch in enumerate(node.branches):
                    members = self.structure.members(here)[index]
                    for number, line in enumerate(self.lines(branch, (*here, index), members, level)):
                        yield indent + ("+- " if number == 0 else "|  ") + line
            elif isinstance(node, Compute):
                yield f"{indent}compute {node.einsum}: {self._equation(node.einsum)}"
            else:
                head = self.structure.heads(group)[-1]
                word = "parallel-for" if isinstance(node, Spatial) else "for"
                yield f"{indent}{word} {node.rank} in tiles of {node.tile_shape}{self._trips(head, level)}"
                indent, level = indent + "| ", level + 1

    def _target(self, target: int) -> str:
        return self.names.get(target, "DRAM" if target == 0 else f"buffer {target}")

    def _block(self, address: Address, tensor: str) -> str:
        extents = self.sizes.blocks.get((address, tensor))
        return tensor if extents is None else f"{tensor}[{', '.join(map(str, extents))}]"

    def _trips(self, einsum: str, level: int) -> str:
        least, most = self.sizes.trips.get((einsum, level), (0, 0))
        if not most:
            return ""
        return f" ({most})" if least == most else f" ({least} to {most})"

    def _equation(self, name: str) -> str:
        einsum = self.structure.paths[name].einsum
        outputs, inputs = (", ".join(map(_access, einsum.outputs)), " * ".join(map(_access, einsum.inputs)))
        reduces = any(set(einsum.ranks) - tensor.ranks for tensor in einsum.outputs)
        return f"{outputs} {'+=' if reduces else '='} {inputs}"


def _access(tensor: Tensor) -> str:
    def term(rank: str, coefficient: int) -> str:
        return rank if coefficient == 1 else f"{coefficient}*{rank}"

    sums = (" + ".join(term(t.rank, t.coefficient) for t in terms) or "0" for terms in tensor.projection)
    return f"{tensor.name}[{', '.join(sums)}]"
