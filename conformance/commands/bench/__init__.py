"""`refnum bench`: how fast a subject's kernels are, beside a copy of the device and what a user would take instead."""
