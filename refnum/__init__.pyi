"""Public names of refnum. `__init__.py` reads this list: a name is imported from its module when it is first used."""

from . import errors, layouts, oracle, philox
from .blocks import block_class, dequantize_mx, dequantize_mxfp4, quantize_mx, quantize_mxfp4
from .bounds import product_bounds
from .casts import decode_e2m1, decode_e4m3, decode_e8m0, encode_e2m1, encode_e4m3, encode_e8m0
from .codec import decode, value
from .columns import fp8_columns, mxfp4_columns, mxfp4_to_fp8_columns, mxfp4_to_fp8_rows_columns
from .estimators import dge, occ, vector_scales
from .explanation import Explanation, explain
from .formats import (
    BF16,
    E2M1,
    E2M3,
    E3M0,
    E3M2,
    E4M3,
    E5M2,
    E8M0,
    FORMATS,
    FP4_RADIX4,
    FP16,
    FP32,
    INT4,
    MX_ELEMENTS,
    MXINT8,
    Format,
    get_format,
)
from .gradients import grad_scale, hindsight_amax, smp_average
from .hadamard import hadamard16, hadamard_quantize_nvfp4
from .integer import dequantize_int4, efficient_qat, int4_affine, int4_keep_two, sawb
from .llm_quantisers import llm_fp4, llm_qat
from .logarithmic import dequantize_luq, dequantize_radix4, luq, radix4, tpr
from .narrow import encode
from .nvfp4 import dequantize_nvfp4, quantize_nvfp4
from .optimisers import (
    AdamState,
    SpamState,
    adam_step,
    exact_norm,
    spam_step,
)
from .oscillation import (
    channel_norms,
    distance_update,
    ema_update,
    osci_reset,
    osci_reset_by_distance,
    out_control,
    q_ramping,
    ramping_step,
)
from .payload import (
    fp8_to_payload,
    pack_payload,
    permute_pad,
    permute_unpack,
    quantize_payload,
    unpack_payload,
    unpermute,
)
from .product import matmul_bf16, matmul_fp8
from .profiles import HOPPER, OCP, PROFILES, Profile, get_profile
from .recast import fp8_to_mxfp4, mxfp4_to_fp8
from .stable_spam import StableSpamFactors, StableSpamState, stable_spam_factors, stable_spam_step
from .swiglu import swiglu_backward, swiglu_quantize
from .tensor_core import tensor_core_step
from .tetrajet import dequantize_tetrajet, double_quantise, q_ema, quantize_tetrajet
from .tetrajet_v2 import dequantize_tetrajet_v2, quantize_tetrajet_v2, tetrajet_v2_noise, tetrajet_v2_signs
from .tiles import dequantize_fp8_tiles, quantize_fp8_tiles
from .updates import adam_apply, spam_apply, stable_spam_apply

__version__: str

__all__ = [
    "BF16",
    "E2M1",
    "E2M3",
    "E3M0",
    "E3M2",
    "E4M3",
    "E5M2",
    "E8M0",
    "FORMATS",
    "FP4_RADIX4",
    "FP16",
    "FP32",
    "HOPPER",
    "INT4",
    "MXINT8",
    "MX_ELEMENTS",
    "OCP",
    "PROFILES",
    "AdamState",
    "Explanation",
    "Format",
    "Profile",
    "SpamState",
    "StableSpamFactors",
    "StableSpamState",
    "adam_apply",
    "adam_step",
    "block_class",
    "channel_norms",
    "decode",
    "decode_e2m1",
    "decode_e4m3",
    "decode_e8m0",
    "dequantize_fp8_tiles",
    "dequantize_int4",
    "dequantize_luq",
    "dequantize_mx",
    "dequantize_mxfp4",
    "dequantize_nvfp4",
    "dequantize_radix4",
    "dequantize_tetrajet",
    "dequantize_tetrajet_v2",
    "dge",
    "distance_update",
    "double_quantise",
    "efficient_qat",
    "ema_update",
    "encode",
    "encode_e2m1",
    "encode_e4m3",
    "encode_e8m0",
    "errors",
    "exact_norm",
    "explain",
    "fp8_columns",
    "fp8_to_mxfp4",
    "fp8_to_payload",
    "get_format",
    "get_profile",
    "grad_scale",
    "hadamard16",
    "hadamard_quantize_nvfp4",
    "hindsight_amax",
    "int4_affine",
    "int4_keep_two",
    "layouts",
    "llm_fp4",
    "llm_qat",
    "luq",
    "matmul_bf16",
    "matmul_fp8",
    "mxfp4_columns",
    "mxfp4_to_fp8",
    "mxfp4_to_fp8_columns",
    "mxfp4_to_fp8_rows_columns",
    "occ",
    "oracle",
    "osci_reset",
    "osci_reset_by_distance",
    "out_control",
    "pack_payload",
    "permute_pad",
    "permute_unpack",
    "philox",
    "product_bounds",
    "q_ema",
    "q_ramping",
    "quantize_fp8_tiles",
    "quantize_mx",
    "quantize_mxfp4",
    "quantize_nvfp4",
    "quantize_payload",
    "quantize_tetrajet",
    "quantize_tetrajet_v2",
    "radix4",
    "ramping_step",
    "sawb",
    "smp_average",
    "spam_apply",
    "spam_step",
    "stable_spam_apply",
    "stable_spam_factors",
    "stable_spam_step",
    "swiglu_backward",
    "swiglu_quantize",
    "tensor_core_step",
    "tetrajet_v2_noise",
    "tetrajet_v2_signs",
    "tpr",
    "unpack_payload",
    "unpermute",
    "value",
    "vector_scales",
]
