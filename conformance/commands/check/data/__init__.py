"""Real input: tensors from files, and what quantisation does to them."""

from .load import SUFFIXES, load_tensors
from .statistics import statistics, tensor_statistics

__all__ = ["SUFFIXES", "load_tensors", "statistics", "tensor_statistics"]
