"""Trigger mutants: the golden model made wrong on purpose where a drawn condition over a call holds.

A trigger is one condition or two over raw facts of a call, and an effect on its results. Thresholds and residues are
drawn from a seed, never from a table of the harness, so that a seed nobody has used is an exam nobody tuned for.
"""
