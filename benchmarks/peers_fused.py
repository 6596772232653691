"""A fused pair side by side with AccelForge and Stream: S = Q K, O = S V on the NVDLA-like architecture ("Accel. 1").

One common count for every mapping: words between DRAM and buffer, words between buffer and arrays, the energies of
``arch/nvdla_like.ERT.yaml`` (DRAM 8 pJ a bit, buffer 132.49 and 147.186 pJ per 128 bits, MAC 3.275 pJ, nothing for what lies
in the arrays), 30 words of DRAM a cycle, 4096 MACs a cycle, latency the larger of the two. AccelForge reports those words for its
mapping; they are priced here with the same figures as ours, and its own total is printed to show that it agrees.

What is not the same:

- The four arrays. Ours splits a head along its common outer rank, as the publication does; the first AccelForge run is held to
  that ("split I"). The second may split any rank, which adds up partial sums across arrays for nothing ("split any"), and
  is held against ours with ``--arrays free``, which may do the same.
- The stationary tensor. AccelForge keeps the weights (K and V) in the arrays, as its own examples do; with the choice left free
  it gave no answer in five minutes. Ours chooses for each Einsum.
- Stream has no shared buffer between arrays that it would fill by itself: four cores have a quarter of it each. It reports cycles
  and DRAM transfers, but no energy of the whole; register files are as small as its cost model takes.
- AccelForge excludes recomputation, Stream takes one tiling by rule; ours is optimal over its mapspace.

    python benchmarks/peers_fused.py [--repeats 3] [--long] [--python PYTHON3.12] [--json FILE]
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers.environment import ACCELFORGE, STREAM
from peers.problems import pair
from peers.process import Measured, fastest
from peers.report import TIMES, arguments, attempt, interpreter, load, save, time_line, time_ratio, verdict

HERE = Path(__file__).parent / "peers"
NVDLA = Path(__file__).parents[1] / "arch" / "nvdla_like.yaml"
Port = tuple[str, int, list[str]]
"""Kind, bits a cycle, flows of operands."""
Sizes = tuple[int, int, int, int]
"""I, K, L, J."""
HEAD = "GPT-3-6.7B, one head, 2048 tokens"
PAIRS: dict[str, Sizes] = {HEAD: (2048, 128, 2048, 128), "MLP of 768 x 64 x 384 x 64": (768, 64, 384, 64)}
SPLITS = {"AccelForge, split I": "reuse: weight, ", "AccelForge, split any": ""}
OBJECTIVES = {"energy": "ENERGY", "latency": "LATENCY"}
WORD, CAPACITY = 16, 2**20
"""Bits of a word; bytes of the buffer."""
WORDS_PER_CYCLE, MACS_PER_CYCLE = 30, 4096
DRAM_PJ, READ_PJ, WRITE_PJ, MAC_PJ = 128.0, 132.49 / 8, 147.186 / 8, 3.275
"""Per 16-bit word; per operation."""
FASTER, FASTER_WARM, WHOLE_S, PEAK_MB = 10, 100, 1.0, 300
SMALL_BUFFER = 65536
"""Bytes, and words of 8 bits."""
DRAM_LIMITS = {"perfect": 6.82, "imperfect": 5.25}
"""MB of DRAM traffic for a head of GPT-3-6.7B over 64 KB."""
PRIME, PRIME_LIMIT, PRIME_SECONDS = (1021, 61, 1021, 61), 1.04, 3.0


@dataclass(frozen=True)
class Count:
    """A mapping under the common count; what a peer does not tell is None."""

    dram: float
    cycles: float
    reads: float | None = None
    writes: float | None = None
    macs: float = 0.0

    @property
    def energy(self) -> float | None:
        """pJ."""
        if self.reads is None or self.writes is None:
            return None
        return DRAM_PJ * self.dram + READ_PJ * self.reads + WRITE_PJ * self.writes + MAC_PJ * self.macs

    def line(self, name: str) -> str:
        energy = f"{self.energy / 1e6:12.2f}" if self.energy is not None else f"{'not told':>12}"
        return f"{name:<40}{self.dram * WORD / 8e6:12.3f}{energy}{self.cycles:12.0f}"


def count_ours(answer: Mapping[str, Any]) -> Count:
    return Count(
        answer["dram_words"], answer["cycles"], answer["buffer_reads"], answer["buffer_writes"], answer["operations"]
    )  # fmt: skip


def count_accelforge(answer: Mapping[str, Any]) -> Count:
    def words(component: str, *actions: str) -> float:
        parts = ((*key.split("/"), bits) for key, bits in answer["bits"].items())
        return sum(bits for where, _, action, bits in parts if where == component and action in actions) / WORD

    dram, macs = words("DRAM", "read", "write"), words("MAC", "compute") * WORD
    cycles = max(answer["seconds"]["MAC"] * 1e9, dram / WORDS_PER_CYCLE)
    return Count(dram, cycles, words("GlobalBuffer", "read"), words("GlobalBuffer", "write"), macs)


def count_stream(answer: Mapping[str, Any]) -> Count:
    return Count(sum(answer["dram_words"].values()), answer["cycles"])


def ours(sizes: Sizes, objective: str, imperfect: bool, given: Namespace, **more: Any) -> Measured:
    job = {
        "inputs": [str(NVDLA), pair(*sizes)], "variables": {}, "objective": objective, "imperfect": imperfect, "fused": True,
        "warm": 5, **more,
    }  # fmt: skip
    return fastest(sys.executable, "run_stitchloop.py", job, given.repeats)


def accelforge_job(arch: str, sizes: Sizes, metric: str, variables: dict[str, Any], **more: Any) -> dict[str, Any]:
    variables = {**dict(zip("IKLJ", sizes, strict=True)), "BITS": WORD, "CAPACITY": 8 * CAPACITY, **variables}
    files = {"arch": str(HERE / arch), "workload": str(HERE / "pair.accelforge.yaml")}
    return {**files, "variables": variables, "metric": metric, **more}


def stream_hardware() -> dict[str, Any]:
    """Four arrays of 32 x 32 with a quarter of the buffer each, on one bus of 480 bits a cycle to DRAM."""

    def memory(size: int, operands: str, ports: list[Port], served: list[str], read: float, write: float) -> dict[str, Any]:
        names = {"read": "r_port_", "write": "w_port_", "read_write": "rw_port_"}
        listed = [
            {"name": names[kind] + str(i), "type": kind, "bandwidth_min": 16, "bandwidth_max": bits, "allocation": flows}
            for i, (kind, bits, flows) in enumerate(ports, 1)
        ]
        fixed = {"area": 0, "latency": 1, "r_cost": read, "w_cost": write}
        return {"size": size, **fixed, "operands": operands.split(), "ports": listed, "served_dimensions": served}

    both = ["D1", "D2"]
    inward, outward = ["I1, tl", "I2, tl", "O, tl", "O, th"], ["I1, fh", "I2, fh", "O, fh", "O, fl"]
    sums = [("read", 32, ["O, tl"]), ("read", 32, ["O, th"]), ("write", 32, ["O, fh"]), ("write", 32, ["O, fl"])]
    core = {
        "name": "array",
        "type": "zigzag.compute",
        "memories": {
            "weights": memory(256, "I2", [("read", 16, ["I2, tl"]), ("write", 16, ["I2, fh"])], [], 0, 0),
            "sums": memory(32, "O", sums, ["D2"], 0, 0),
            "buffer": memory(
                2 * CAPACITY, "I1 I2 O", [("read", 8192, inward), ("write", 8192, outward)], both, 512 * READ_PJ, 512 * WRITE_PJ
            ),
        },
        "operand_precision": {"input": "fp16", "accumulator": "fp16"},
        "operational_array": {"unit_energy": MAC_PJ, "unit_area": 0, "dimensions": both, "sizes": [32, 32]},
    }
    flows = ["I1, fh", "I1, tl", "I2, fh", "I2, tl", "O, fh", "O, tl", "O, fl", "O, th"]
    width = WORDS_PER_CYCLE * WORD
    dram = memory(10**12, "I1 I2 O", [("read_write", width, flows)], both, WORDS_PER_CYCLE * DRAM_PJ, WORDS_PER_CYCLE * DRAM_PJ)
    offchip = {
        "name": "offchip", "type": "zigzag.offchip", "memories": {"dram": dram},
        "operational_array": {"unit_energy": 0, "unit_area": 0, "dimensions": both, "sizes": [0, 0]},
    }  # fmt: skip
    return {
        "name": "nvdla_like", "cores": [*[core] * 4, offchip], "offchip_core_id": 4, "unit_energy_cost": 0.0,
        "core_connectivity": [{"type": "bus", "cores": [0, 1, 2, 3, 4], "bandwidth": width}],
    }  # fmt: skip


def side_by_side(name: str, sizes: Sizes, objective: str, pythons: dict[str, Path | None], given: Namespace) -> dict[str, Any]:
    """One pair, one objective: times, then figures under the common count."""
    print(f"\n{name}, 16-bit words, perfect factors, least {objective}")
    mine = ours(sizes, objective, False, given)
    front = ours(sizes, objective, False, Namespace(repeats=1), front=True).answer["front"]
    free = ours(sizes, objective, False, given, arrays="free")
    free_front = ours(sizes, objective, False, Namespace(repeats=1), front=True, arrays="free").answer["front"]
    runs: dict[str, Measured | None] = {}
    for text, split in list(SPLITS.items())[: 2 if given.long or objective == "energy" else 1]:
        job = accelforge_job("nvdla_like.accelforge.yaml", sizes, OBJECTIVES[objective], {"SPLIT": split, "FILL": 1}, warm=1)
        runs[text] = attempt(pythons["accelforge"], "run_accelforge.py", job)
    stream = {"sizes": sizes, "hardware": stream_hardware(), "word_bits": WORD, "port_bits": WORDS_PER_CYCLE * WORD, "warm": 1}
    runs["Stream"] = attempt(pythons["stream"], "run_stream.py", stream)
    peers = {text: run for text, run in runs.items() if run is not None}
    print(TIMES)
    print(time_line("Stitchloop", mine))
    print(time_line("Stitchloop, --arrays free", free))
    for text, run in peers.items():
        print(time_line(text, run))
    for text, run in peers.items():
        print(time_ratio(f"times faster than {text}", mine, run))
    print(f"{'under the common count':<40}{'DRAM MB':>12}{'energy uJ':>12}{'cycles':>12}")
    counts = {text: (count_stream if text == "Stream" else count_accelforge)(run.answer) for text, run in peers.items()}
    ours_count = count_ours(mine.answer)
    print(ours_count.line("Stitchloop"))
    print(count_ours(free.answer).line("Stitchloop, --arrays free"))
    for text, count in counts.items():
        print(count.line(text))
    for text, run in peers.items():
        if text != "Stream":
            print(f"  {text}: its own total is {sum(run.answer['energy_pJ'].values()) / 1e6:.2f} uJ")
    alike = {text: free if text.endswith("any") else mine for text in peers}
    judge(objective, alike, peers, counts)
    for text, count in counts.items():
        one = [point for point in (free_front if text.endswith("any") else front) if no_worse(point, count)]
        verdict(f"one mapping no worse than {text}'s in DRAM traffic, latency and energy: {written(one)}", bool(one))
    return {"ours": {**mine.answer, "whole_s": mine.whole_s, "peak_mb": mine.peak_mb}} | {
        text: {**run.answer, "whole_s": run.whole_s, "peak_mb": run.peak_mb} for text, run in peers.items()
    }


def no_worse(point: Sequence[float], count: Count) -> bool:
    """A point of our front (DRAM words, cycles, pJ) against a peer's mapping; an energy that is not told is not compared."""
    theirs = (count.dram, count.cycles, count.energy)
    return all(own <= peer * (1 + 1e-6) for own, peer in zip(point, theirs, strict=True) if peer is not None)


def written(points: list[Sequence[float]]) -> str:
    if not points:
        return "none"
    dram, cycles, energy = points[0]
    return f"{dram * WORD / 8e6:.3f} MB, {cycles:.0f} cycles, {energy / 1e6:.2f} uJ"


def judge(objective: str, alike: dict[str, Measured], peers: dict[str, Measured], counts: dict[str, Count]) -> None:
    """Hold each peer against our run under the same rule for the arrays (``alike``)."""
    for text, run in peers.items():
        mine = alike[text]
        verdict(f"whole process under {WHOLE_S:g} s (wall; {mine.cpu_s:.2f} s of processor)", mine.whole_s < WHOLE_S)
        verdict(f"under {PEAK_MB} MB", mine.peak_mb < PEAK_MB)
        verdict(f"whole process at least {FASTER} times faster than {text}", run.whole_s >= FASTER * mine.whole_s)
        if text != "Stream":
            verdict(f"in process at least {FASTER_WARM} times faster than {text}", run.warm_s >= FASTER_WARM * mine.warm_s)
        value = {"energy": lambda count: count.energy, "latency": lambda count: count.cycles}[objective]
        theirs, own = value(counts[text]), value(count_ours(mine.answer))
        if theirs is not None and own is not None:
            verdict(f"{objective} no worse than {text}'s: {own / theirs:.4f} of it", own <= theirs * (1 + 1e-6))


def dram_traffic(python: Path | None, given: Namespace) -> dict[str, Any]:
    """DRAM traffic alone, 8-bit words, 64 KB."""
    sizes = PAIRS[HEAD]
    print(f"\nGPT-3-6.7B, one head, 8-bit words, {SMALL_BUFFER} bytes of buffer, least DRAM traffic")
    print(TIMES + f"{'DRAM MB':>10}")
    found: dict[str, Any] = {}
    for factors, limit in DRAM_LIMITS.items():
        mine = ours(sizes, "dram", factors == "imperfect", given, capacity=SMALL_BUFFER)
        print(time_line(f"Stitchloop, {factors}", mine) + f"{mine.answer['dram_words'] / 1e6:10.3f}")
        found[factors] = {"ours": mine.answer}
        if factors == "perfect" or given.long:
            job = accelforge_job(
                "dram_only.accelforge.yaml", sizes, "ENERGY", {"BITS": 8, "CAPACITY": 8 * SMALL_BUFFER},
                imperfect=factors == "imperfect", warm=0,
            )  # fmt: skip
            peer = attempt(python, "run_accelforge.py", job)
            if peer is not None:
                print(time_line(f"AccelForge, {factors}", peer) + f"{peer.answer['energy_pJ']['DRAM'] / 8e6:10.3f}")
                print(time_ratio("times faster", mine, peer))
                found[factors]["peer"] = {**peer.answer, "whole_s": peer.whole_s, "peak_mb": peer.peak_mb}
        verdict(f"at most {limit} MB with {factors} factors", mine.answer["dram_words"] / 1e6 <= limit)
    return found


def prime(python: Path | None, given: Namespace) -> dict[str, Any]:
    """Prime sizes: cycles over the compute bound."""
    print(f"\nprime sizes {PRIME} (I, K, L, J), 16-bit words, least latency")
    mine = ours(PRIME, "latency", True, given)
    print(TIMES + f"{'cycles / bound':>16}")
    bound = mine.answer["ideal"]
    print(time_line("Stitchloop, imperfect", mine) + f"{mine.answer['cycles'] / bound:16.4f}")
    found: dict[str, Any] = {"ours": mine.answer}
    for factors in ("default", *(("imperfect",) if given.long else ())):
        variables = {"SPLIT": "reuse: weight, ", "FILL": 0}
        job = accelforge_job("nvdla_like.accelforge.yaml", PRIME, "LATENCY", variables, imperfect=factors == "imperfect", warm=0)
        peer = attempt(python, "run_accelforge.py", job)
        if peer is not None:
            print(time_line(f"AccelForge, {factors}", peer) + f"{peer.answer['latency_s'] * 1e9 / bound:16.4f}")
            print(time_ratio("times faster", mine, peer))
            found[factors] = {**peer.answer, "whole_s": peer.whole_s, "peak_mb": peer.peak_mb}
    verdict(f"within {PRIME_LIMIT - 1:.0%} of the compute bound", mine.answer["cycles"] <= PRIME_LIMIT * bound)
    verdict(f"whole process under {PRIME_SECONDS:g} s", mine.whole_s < PRIME_SECONDS)
    return found


def main() -> None:
    given = arguments(__doc__.splitlines()[0])
    print(load())
    pythons = {peer.name: interpreter(peer, given) for peer in (ACCELFORGE, STREAM)}
    found: dict[str, Any] = {}
    for name, sizes in PAIRS.items():
        for objective in OBJECTIVES:
            found[f"{name}, {objective}"] = side_by_side(name, sizes, objective, pythons, given)
    found["dram"] = dram_traffic(pythons["accelforge"], given)
    found["prime"] = prime(pythons["accelforge"], given)
    save(given, found)


if __name__ == "__main__":
    main()
