"""Recipes: drawn by Hypothesis, expanded by Philox, written as JSON, simplified by a shrinker."""

from .inputs import edited, expand
from .recipe import Recipe
from .sampled import sampled_cases, sampled_recipes
from .simplify import simpler, size

__all__ = ["Recipe", "edited", "expand", "sampled_cases", "sampled_recipes", "simpler", "size"]
