"""Policies: in which format each edge of the layer is computed, sent and kept (N28), and the bytes that follow."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from fractions import Fraction

from refnum.errors import ProfileError, shown

from .recipes import RECIPES, Recipe

FORMATS: dict[str, Fraction] = {"bfloat16": Fraction(2), "fp8": Fraction(33, 32), "mxfp4": Fraction(17, 32)}
"""Format of a row -> bytes an element: two; a code and a float32 scale for 128; half a byte and an E8M0 byte for 32.

FP8 scales are counted as other libraries and the recipe keep them; ours are E8M0 bytes, see `row_bytes`.
"""
_BLOCK = {"bfloat16": 1, "fp8": 128, "mxfp4": 32}

CHOICES: dict[str, tuple[str, ...]] = {
    "products": ("bfloat16", "fp8", *RECIPES),
    "dispatched": tuple(FORMATS),
    "saved_input": tuple(FORMATS),
    "saved_activation": (*FORMATS, "recompute"),
    "fc2_input": ("recompute", "store"),
    "combined": ("bfloat16",),
    "optimiser": ("adam", "stable-spam"),
    "on_mismatch": ("continue", "stop"),
}
"""Field of a policy -> its values."""


@dataclass(frozen=True)
class Policy:
    """One way to compute, send and keep the tensors of a mixture-of-experts layer (N20, N28).

    Attributes:
        name: a row of `POLICIES`, or `BASE+field=value`.
        products: operands of the experts' products, forward and backward: a format, or a recipe of `RECIPES`, whose
            operands are quantised and multiplied in bfloat16.
        dispatched: rows sent to experts.
        saved_input: FC1's input, kept for its weight gradient.
        saved_activation: FC1's output (gate and up), kept for the backward pass of SwiGLU; `recompute` multiplies the
            saved input once more.
        fc2_input: `store` keeps FC2's input, as MXFP4 if `saved_activation` is, else as `products`; `recompute` makes
            it from gate and up.
        combined: rows that return from experts, and the gradients of both exchanges.
        optimiser: of the whole model (N28.7).
        on_mismatch: whether training goes on after the witness has found and saved a mismatch.

    Raises:
        ProfileError: a field has an unknown value, or two fields contradict each other.
    """

    name: str
    products: str
    dispatched: str
    saved_input: str
    saved_activation: str
    fc2_input: str
    combined: str = "bfloat16"
    optimiser: str = "adam"
    on_mismatch: str = "continue"

    def __post_init__(self) -> None:
        for field, values in CHOICES.items():
            if getattr(self, field) not in values:
                raise ProfileError(
                    f"policy {shown(self.name)} has {field}={getattr(self, field)!s}; choose from {', '.join(values)}"
                )
        if wrong := _wider_than_received(self):
            raise ProfileError(f"policy {shown(self.name)} contradicts itself: {wrong}")

    @property
    def recipe(self) -> Recipe | None:
        """The recipe of the products' operands, if they have one."""
        return RECIPES.get(self.products)

    @property
    def operands(self) -> str:
        """The format in which operands are multiplied, `fp8` or `bfloat16`."""
        return "fp8" if self.products == "fp8" else "bfloat16"


def _wider_than_received(policy: Policy) -> str:
    """Return why a row cannot be kept in a wider format than it came in, or an empty text."""
    if FORMATS[policy.saved_input] <= FORMATS[policy.dispatched]:
        return ""
    return (
        f"saved_input={policy.saved_input} is wider than dispatched={policy.dispatched}, the only copy that arrives; "
        f"keep saved_input={policy.dispatched} or narrower"
    )


POLICIES: dict[str, Policy] = {
    row.name: row
    for row in (
        Policy("bf16", "bfloat16", "bfloat16", "bfloat16", "bfloat16", "recompute"),
        Policy("fp8", "fp8", "fp8", "fp8", "fp8", "recompute"),
        Policy("mxfp4", "fp8", "mxfp4", "mxfp4", "mxfp4", "recompute"),
        *(Policy(name, name, "bfloat16", "bfloat16", "bfloat16", "recompute") for name in RECIPES),
        Policy(
            "stable-spam", "mxfp4-products", "bfloat16", "bfloat16", "bfloat16", "recompute", optimiser="stable-spam"
        ),
    )
}
"""Name -> policy: BF16 throughout, FP8 1x128 throughout, the recipe for Hopper GPUs, simulated products, and another
optimiser."""


def get_policy(policy: Policy | str) -> Policy:
    """Return the policy of a name; a Policy is returned as it is.

    Args:
        policy: a name of `POLICIES`, or one and the fields that differ, as in `mxfp4+fc2_input=store`.

    Returns:
        The policy.

    Raises:
        ProfileError: the name, a field or a value is unknown, a field is given twice, or fields contradict each other.
    """
    if isinstance(policy, Policy):
        return policy
    base, *changes = policy.split("+") if isinstance(policy, str) else [None]
    if base not in POLICIES:
        raise ProfileError(f"policy {shown(policy)} is not known; known are {', '.join(POLICIES)}")
    fields = dict(_change(policy, change) for change in changes)
    if len(fields) < len(changes):
        raise ProfileError(f"policy {shown(policy)} gives a field twice; give each once")
    return dataclasses.replace(POLICIES[base], name=policy, **fields) if fields else POLICIES[base]


def _change(policy: str, change: str) -> tuple[str, str]:
    field, equals, value = change.partition("=")
    if field not in CHOICES or not equals:
        raise ProfileError(
            f"policy {shown(policy)}: {shown(change)} is no field=value; fields are {', '.join(CHOICES)}"
        )
    return field, value


def row_bytes(form: str, columns: int, scale_bytes: int = 4) -> int:
    """Return the bytes of one row: its elements and its scales.

    Args:
        form: a format of `FORMATS`.
        columns: elements of the row.
        scale_bytes: of an FP8 scale: 4 as float32, 1 as the E8M0 byte that our operations take.

    Returns:
        `2 K`, `33 K / 32` (`129 K / 128` with bytes) or `17 K / 32`.

    Raises:
        ProfileError: the columns are no whole number of the format's blocks.
    """
    if columns % _BLOCK[form]:
        raise ProfileError(f"a row of {columns} columns has no whole {form} blocks; give a multiple of {_BLOCK[form]}")
    return columns + scale_bytes * (columns // 128) if form == "fp8" else int(FORMATS[form] * columns)


def saved_bytes(policy: Policy, hidden: int, ffn: int, scale_bytes: int = 4) -> dict[str, int]:
    """Return what the backward pass keeps for one routed token, by edge.

    Args:
        policy: the formats.
        hidden, ffn: columns of the layer, and within an expert.
        scale_bytes: of an FP8 scale, as in `row_bytes`.

    Returns:
        Edge -> bytes: `input` of FC1, `activation` (gate and up), and `fc2_input`; 0 where it is recomputed.
    """
    second = "mxfp4" if policy.saved_activation == "mxfp4" else policy.operands
    again = policy.saved_activation == "recompute"
    return {
        "input": row_bytes(policy.saved_input, hidden, scale_bytes),
        "activation": 0 if again else row_bytes(policy.saved_activation, 2 * ffn, scale_bytes),
        "fc2_input": row_bytes(second, ffn, scale_bytes) if policy.fc2_input == "store" else 0,
    }
