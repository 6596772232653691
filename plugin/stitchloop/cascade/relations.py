"""How the iteration spaces of two neighbours relate: the fusion classes RI, RSb, RSp and RD.

For a producer u and a consumer v through tensor T, a rank *extra* to u indexes u but not T, and a rank extra to v indexes
v but not T, or was reduced by u and is iterated again by v.

========================  ===============  ======================================
class                     condition        example
========================  ===============  ======================================
RI, rank-isomorphic       no extra ranks   elementwise to elementwise
RSb, rank-subsetted       extra to u only  GEMM to elementwise
RSp, rank-supersetted     extra to v only  elementwise to GEMM, broadcast
RD, rank-disjoint         both             GEMM to GEMM
========================  ===============  ======================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from stitchloop.cascade.cascade import Cascade, CascadeTensor
from stitchloop.cascade.expression import Access, Equation


class FusionClass(Enum):
    """Relation of two neighbours; ``value`` is the published abbreviation."""

    RI = "RI"
    RSB = "RSb"
    RSP = "RSp"
    RD = "RD"

    def __str__(self) -> str:
        return self.value


_BY_STRENGTH = tuple(FusionClass)
_BY_EXTRAS = {
    (False, False): FusionClass.RI,
    (True, False): FusionClass.RSB,
    (False, True): FusionClass.RSP,
    (True, True): FusionClass.RD,
}


@dataclass(frozen=True)
class Relation:
    """Relation of a producer and a consumer.

    Attributes
    ----------
    fusion_class : FusionClass
    shared : frozenset of str
        Ranks that both run over together: those of the tensors between them, else those of both iteration spaces.
    extra_producer, extra_consumer : tuple of str
        The ranks that set them apart.
    tensors : tuple of str
        What passes from one to the other; empty for neighbours that exchange nothing.
    """

    fusion_class: FusionClass
    shared: frozenset[str]
    extra_producer: tuple[str, ...]
    extra_consumer: tuple[str, ...]
    tensors: tuple[str, ...]


def relate(cascade: Cascade, producers: Sequence[Equation], consumers: Sequence[Equation]) -> Relation:
    """Relation of a node and a later one, each one equation or the several of a multi-output Einsum or merged node.

    Nodes that exchange tensors are related through each of these; others by the names of the ranks of all their
    equations. Several edges give RD where one is RD or where RSb and RSp mix, else the strongest of them.
    """
    edges = [
        _through_tensor(cascade.tensor(u.output.tensor), u, v, access)
        for u in producers
        for v in consumers
        for access in v.inputs
        if access.tensor == u.output.tensor
    ]
    return _combine(edges or [_by_name(u, v) for u in producers for v in consumers])


def _through_tensor(tensor: CascadeTensor, u: Equation, v: Equation, access: Access) -> Relation:
    shared: list[str] = []
    extra_u = [rank for rank in u.ranks if rank not in u.output.ranks]
    extra_v = [rank for rank in v.ranks if rank not in access.ranks]
    for own, index in zip(u.output.ranks, access.indices, strict=True):
        if own in index.ranks or not index.ranks:
            shared.append(own)
            extra_v += [rank for rank in index.ranks if rank != own]
        elif own not in v.ranks and index.ranks[0] not in u.ranks:
            shared.append(own)
            extra_v += index.ranks[1:]
        else:
            extra_u.append(own)
            extra_v += index.ranks
    extra_v += [rank for rank in u.reduced if rank in v.ranks]
    return _relation(shared, extra_u, extra_v, (tensor.name,))


def _by_name(u: Equation, v: Equation) -> Relation:
    extra_u = [rank for rank in u.ranks if rank not in v.ranks]
    extra_v = [rank for rank in v.ranks if rank not in u.ranks]
    return _relation([rank for rank in u.ranks if rank in v.ranks], extra_u, extra_v, ())


def _relation(shared: Iterable[str], extra_u: Iterable[str], extra_v: Iterable[str], tensors: tuple[str, ...]) -> Relation:
    extra_u, extra_v = tuple(dict.fromkeys(extra_u)), tuple(dict.fromkeys(extra_v))
    return Relation(_BY_EXTRAS[bool(extra_u), bool(extra_v)], frozenset(shared), extra_u, extra_v, tensors)


def _combine(edges: Sequence[Relation]) -> Relation:
    if len(edges) == 1:
        return edges[0]
    classes = {edge.fusion_class for edge in edges}
    mixed = {FusionClass.RSB, FusionClass.RSP} <= classes
    return Relation(
        FusionClass.RD if mixed else max(classes, key=_BY_STRENGTH.index),
        frozenset().union(*(edge.shared for edge in edges)),
        tuple(dict.fromkeys(rank for edge in edges for rank in edge.extra_producer)),
        tuple(dict.fromkeys(rank for edge in edges for rank in edge.extra_consumer)),
        tuple(dict.fromkeys(name for edge in edges for name in edge.tensors)),
    )
