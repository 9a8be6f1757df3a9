"""Controls that must pass."""
