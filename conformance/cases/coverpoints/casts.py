"""Coverpoints of the scalar casts (N1, N2)."""

from .elements import ROUNDING
from .scales import READ, SCALE_CAST

encode_e2m1 = encode_e4m3 = (ROUNDING,)
encode_e8m0 = (SCALE_CAST,)
decode_e2m1 = decode_e4m3 = decode_e8m0 = (READ,)
