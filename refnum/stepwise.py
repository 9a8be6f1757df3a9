"""The operations that are explained by float32 operations on one element, to the bits of each output."""

from __future__ import annotations

from .dequantised_explained import DEQUANTISED
from .float_steps import Room
from .integer_explained import INTEGER
from .llm_quantisers_explained import LLM_QUANTISERS
from .oscillation_explained import OSCILLATION
from .payload_explained import PAYLOAD
from .swiglu_explained import SWIGLU
from .tetrajet_v2_explained import TETRAJET_V2
from .updates_explained import UPDATES

STEPWISE: Room = {
    **DEQUANTISED,
    **OSCILLATION,
    **TETRAJET_V2,
    **UPDATES,
    **INTEGER,
    **LLM_QUANTISERS,
    **SWIGLU,
    **PAYLOAD,
}
