"""`refnum check`: the plan of a run, its cases, and its progress."""
