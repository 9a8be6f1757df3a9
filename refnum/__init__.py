"""refnum."""
