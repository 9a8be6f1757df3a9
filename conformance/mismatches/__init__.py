"""What becomes of a mismatch: made small, diagnosed, shown as a page and on a grid of values, kept as a replay file."""
