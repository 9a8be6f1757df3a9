"""Mutation of what is judged and of what judges: operators, a museum of real bugs, the run, and its score."""
