"""Timeloop's output files, the project's JSON documents, and what the terminal shows."""
