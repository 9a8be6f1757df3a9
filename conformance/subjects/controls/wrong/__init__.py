"""Controls that must fail."""
