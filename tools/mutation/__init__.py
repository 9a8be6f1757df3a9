"""Mutation of the golden model and of the comparator: what only a checkout can run."""
