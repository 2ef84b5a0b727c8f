"""Numbers for what steno costs, each a ratio against a baseline that is measured in the same run.

Run `python -m bench`. One file per benchmark; each has `run(plan)` and returns results.
"""
