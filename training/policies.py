"""Policies: what is computed, dispatched and saved in which format, as literal rows (clause N28)."""

from __future__ import annotations

from dataclasses import dataclass

from refnum.errors import ArgumentError, shown


@dataclass(frozen=True)
class Policy:
    """The format of every edge of the layer.

    products: of all six matrix products. dispatched: of a token's payload. saved_input: of the received tokens that the
    backward pass reads. saved_activation: of the gate and the up projection that it reads. fc2_input: whether the
    second product's input is recomputed from these or stored. combined: of the rows that return.
    """

    name: str
    products: str
    dispatched: str
    saved_input: str
    saved_activation: str
    fc2_input: str = "recompute"
    combined: str = "bfloat16"


POLICIES: dict[str, Policy] = {
    "bf16": Policy("bf16", "bfloat16", "bfloat16", "bfloat16", "bfloat16"),
    "fp8": Policy("fp8", "fp8", "fp8", "fp8", "fp8"),
    "mxfp4": Policy("mxfp4", "fp8", "mxfp4", "mxfp4", "mxfp4"),
}


def get_policy(policy: Policy | str) -> Policy:
    """Return the policy of a name; a Policy is returned as it is. Raises ArgumentError for another name."""
    if isinstance(policy, Policy):
        return policy
    if policy not in POLICIES:
        raise ArgumentError(f"policy {shown(policy)} is not known; known are {', '.join(POLICIES)}")
    return POLICIES[policy]
