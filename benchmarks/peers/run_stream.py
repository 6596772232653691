"""Runs in Stream's environment: maps a pair of matrix products with its public Python interface.

Job: ``sizes`` (I, K, L, J), ``hardware`` (the accelerator's file with a list of cores in line), ``warm``. The answer has Stream's
cycles and its transfers to and from DRAM, in words.
"""

import json
import pathlib
import sys
import time

START = time.perf_counter()
import onnx  # noqa: E402
import yaml  # noqa: E402
from onnx import TensorProto, helper, shape_inference  # noqa: E402
from stream.api import SolveOptions, evaluate_mapping  # noqa: E402

IMPORTED = time.perf_counter()


def pair(i, k, l, j):  # noqa: E741
    """S = Q K, O = S V in 16-bit words."""

    def tensor(name, *shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT16, shape)

    nodes = [
        helper.make_node("MatMul", ["Q", "K"], ["S"], name="Scores"),
        helper.make_node("MatMul", ["S", "V"], ["O"], name="Context"),
    ]
    graph = helper.make_graph(nodes, "pair", [tensor("Q", i, k), tensor("K", k, l), tensor("V", l, j)], [tensor("O", i, j)])
    return shape_inference.infer_shapes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


def solve(job):
    return evaluate_mapping("accelerator.yaml", "pair.onnx", "out", options=SolveOptions(artifacts=False))


def dram_words(estimate, offchip, word_bits, port_bits):
    """Transfers as wide as the port, in words, by tensor."""
    for core, tensors in estimate.context.get("memory_accesses").accesses.items():
        if core.id == offchip:
            return {t.name: (count.read + count.write) * port_bits / word_bits for t, count in tensors.items()}
    return {}


def main():
    job = json.loads(sys.argv[1])
    hardware = {**job["hardware"], "cores": dict(enumerate(job["hardware"]["cores"]))}
    pathlib.Path("accelerator.yaml").write_text(yaml.safe_dump(hardware, sort_keys=False))
    onnx.save(pair(*job["sizes"]), "pair.onnx")
    before = time.perf_counter()
    estimate = solve(job)
    times = [time.perf_counter() - before]
    for _ in range(job.get("warm", 0)):
        before = time.perf_counter()
        solve(job)
        times.append(time.perf_counter() - before)
    answer = {
        "import_s": IMPORTED - START,

        "cold_s": times[0],
        "warm_s": times[1:],
        "cycles": float(estimate.cycles),
        "dram_words": dram_words(estimate, job["hardware"]["offchip_core_id"], job["word_bits"], job["port_bits"]),
    }
    pathlib.Path(sys.argv[2]).write_text(json.dumps(answer))


main()
