"""What was measured, beside what; `python -m benchmarks.NAME` from the root of the project."""
