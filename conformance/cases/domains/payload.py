"""Domains of payloads (N12): those of the operation whose codes and scales are joined. Moved bytes have none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..operation import OPERATIONS
from .domain import Domain
from .quantizers import quantizers
from .recast import fp8_to_mxfp4


def quantize_payload(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """Those of `quantize_mxfp4`."""
    for domain in quantizers(OPERATIONS[operation].joins, profile, params):
        yield replace(domain, operation=operation)


fp8_to_payload = fp8_to_mxfp4
