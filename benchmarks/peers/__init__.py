"""What the side-by-side benchmarks share: environments for the peers, measured processes, and the tables.

Scripts named ``run_*.py`` are executed in an environment of their own (the peer's, or ours) and print one JSON document.
"""
