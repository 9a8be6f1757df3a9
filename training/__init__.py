"""The recipe end to end: a mixture-of-experts layer that trains in FP4 and FP8, and its golden model (N20, N28)."""
