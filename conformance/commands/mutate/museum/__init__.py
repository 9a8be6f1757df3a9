"""The museum: real bugs of the field, each made again in our kernels, with its issues (`rows.py`: what is not here)."""

from . import elements, layouts, products, scales
from .exhibit import Exhibit, ExhibitError

EXHIBITS: tuple[Exhibit, ...] = (
    *scales.EXHIBITS,
    *elements.EXHIBITS,
    *layouts.EXHIBITS,
    *products.EXHIBITS,
)

__all__ = ["EXHIBITS", "Exhibit", "ExhibitError"]
