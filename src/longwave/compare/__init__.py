"""Trials and what is seen in them: comparisons, sweeps and the tables of the literature.

A `trial` is a model, a task and a plan, in a folder of its own; the `engine` runs many of them. Everything else here
makes lists of trials and looks at their results.
"""
