"""The problems as documents of Timeloop's and LoopTree's formats."""

from __future__ import annotations

from typing import Any


def gemm(m: int, n: int, k: int, objective: str, imperfect: bool = False) -> dict[str, Any]:
    """Z[m, n] = A[m, k] B[k, n], with mapper options."""
    spaces = [
        {"name": "A", "projection": [[["M"]], [["K"]]]},
        {"name": "B", "projection": [[["K"]], [["N"]]]},
        {"name": "Z", "projection": [[["M"]], [["N"]]], "read_write": True},
    ]
    shape = {"name": "gemm", "dimensions": ["M", "N", "K"], "data_spaces": spaces}
    return {
        "problem": {"version": 0.4, "shape": shape, "instance": {"M": m, "N": n, "K": k}},
        "mapper": {"version": 0.4, "optimization_metrics": [objective], "imperfect": imperfect},
    }


def pair(i: int, k: int, l: int, j: int) -> dict[str, Any]:  # noqa: E741
    """S[i, l] = Q[i, k] K[k, l], O[i, j] = S[i, l] V[l, j] in LoopTree's format."""

    def space(name: str, ranks: str, at: int, output: bool = False) -> dict[str, Any]:
        dimensions = [f"{name}_{rank}" for rank in ranks]
        projection = f"[ {', '.join(f'{rank}{at}' for rank in ranks)} ]"
        return {"name": name, "dimensions": dimensions, "projection": projection, **({"read_write": True} if output else {})}

    scores = {
        "name": "Scores", "dimensions": ["I1", "K1", "L1"],
        "data_spaces": [space("Q", "IK", 1), space("K", "KL", 1), space("S", "IL", 1, True)],
    }  # fmt: skip
    output = {
        "name": "Output", "dimensions": ["I2", "L2", "J2"],
        "data_spaces": [space("S", "IL", 2), space("V", "LJ", 2), space("O", "IJ", 2, True)],
    }  # fmt: skip
    return {
        "problem": [
            {"shape": scores, "instance": f"0 <= I1 < {i} and 0 <= K1 < {k} and 0 <= L1 < {l}"},
            {"shape": output, "instance": f"0 <= I2 < {i} and 0 <= L2 < {l} and 0 <= J2 < {j}"},
        ]
    }
