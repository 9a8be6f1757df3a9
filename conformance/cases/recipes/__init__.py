"""Recipes: drawn by Hypothesis, expanded by Philox, written as JSON, simplified by a shrinker."""

from .inputs import edited, expand
from .recipe import Recipe
from .simplify import simpler, size
from .strategies import recipes, sampled_cases, sampled_recipes

__all__ = ["Recipe", "edited", "expand", "recipes", "sampled_cases", "sampled_recipes", "simpler", "size"]
