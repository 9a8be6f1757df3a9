"""What the golden model is timed beside: one function a contender, over the same arrays, made ready outside the clock.

A contender that is not installed is left out with the reason. torchao and microxcaling are no dependencies of the
project: put them on PYTHONPATH (microxcaling is a checkout whose package is `mx`).
"""

import importlib.metadata
import importlib.util
import sys
import warnings
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import refnum

LIBRARIES = ("gfloat", "ml_dtypes", "torch", "torchao", "microxcaling")
MODULES = {"microxcaling": "mx"}
THREADED = ("torch", "torchao", "microxcaling")


def installed(library):
    """Version of a library, or None."""
    if importlib.util.find_spec(MODULES.get(library, library)) is None:
        return None
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return "checkout"


def tensor(array):
    """A torch tensor of a NumPy array, bfloat16 included, sharing its memory."""
    import torch

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def torchao_mx():
    """torchao's MX module, imported quietly: it complains of GPU extensions that a CPU does not need."""
    import logging

    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torchao.prototype.mx_formats import mx_tensor
    logging.disable(logging.NOTSET)
    return mx_tensor


def torchao_quantize(x, mode):
    import torch

    mx, given = torchao_mx(), tensor(x)
    how = getattr(mx.ScaleCalculationMode, mode)

    def run():
        scale, packed = mx.to_mx(given, torch.float4_e2m1fn_x2, 32, how)
        return packed.numpy(), scale.view(torch.uint8).numpy()

    return run


def torchao_dequantize(packed, scales):
    import torch

    mx, codes, scale = torchao_mx(), tensor(packed), tensor(scales).view(torch.float8_e8m0fnu)
    return lambda: (mx.to_dtype(codes, scale, torch.float4_e2m1fn_x2, 32, torch.float32).numpy(),)


def torchao_fp8_tiles(x):
    """torchao's own torch reference of the 1x128 cast; its scales are float32, no powers of two."""
    from torchao.prototype.blockwise_fp8_training.kernels import torch_blockwise_scale_act_quant_lhs

    given = tensor(x)
    return lambda: torch_blockwise_scale_act_quant_lhs(given)


def torch_fp8_tiles(x):
    """The 1x128 cast with power-of-two scales in plain torch, scale by exponent bits, codes by torch's own cast."""
    import torch

    given = tensor(x)

    def run():
        tiles = given.float().reshape(given.shape[0], -1, 128)
        bits = tiles.abs().amax(-1, keepdim=True).view(torch.int32)
        byte = (((bits >> 23) - 8 + ((bits & 0x7FFFFF) > 0x600000)).clamp(0, 254)).to(torch.int32)
        byte = torch.where(bits == 0, 127, byte)
        codes = (tiles * ((254 - byte) << 23).view(torch.float32)).to(torch.float8_e4m3fn)
        return codes.view(torch.uint8).reshape(given.shape).numpy(), byte.squeeze(-1).to(torch.uint8).numpy()

    return run


def torch_fp8_values(codes, scales):
    import torch

    power = tensor(scales).view(torch.float8_e8m0fnu).float()
    tiles = tensor(codes).view(torch.float8_e4m3fn).float().reshape(codes.shape[0], -1, 128)
    return (tiles * power[..., None]).reshape(codes.shape)


def torch_fp8_dequantize(codes, scales):
    return lambda: (torch_fp8_values(codes, scales).numpy(),)


def torchao_fp8_to_mxfp4(codes, scales):
    """No library has the direct conversion: torch dequantises, torchao quantises."""
    import torch

    mx = torchao_mx()

    def run():
        values = torch_fp8_values(codes, scales)
        scale, packed = mx.to_mx(values, torch.float4_e2m1fn_x2, 32, mx.ScaleCalculationMode.RCEIL)
        return packed.numpy(), scale.view(torch.uint8).numpy()

    return run


def torchao_mxfp4_to_fp8(packed, scales, columns=False):
    """No library has the direct conversion: torchao dequantises, its torch reference quantises (float32 scales)."""
    import torch
    from torchao.prototype.blockwise_fp8_training.kernels import torch_blockwise_scale_act_quant_lhs

    mx, codes, scale = torchao_mx(), tensor(packed), tensor(scales).view(torch.float8_e8m0fnu)

    def run():
        values = mx.to_dtype(codes, scale, torch.float4_e2m1fn_x2, 32, torch.float32)
        return torch_blockwise_scale_act_quant_lhs(values.t().contiguous() if columns else values)

    return run


def torch_fp8_columns(codes, scales):
    from torchao.prototype.blockwise_fp8_training.kernels import torch_blockwise_scale_act_quant_lhs

    return lambda: torch_blockwise_scale_act_quant_lhs(torch_fp8_values(codes, scales).t().contiguous())


def microxcaling_quantize(x):
    """microxcaling quantises and dequantises at once: it returns values, never bytes."""
    from mx.mx_ops import _quantize_mx

    given = tensor(x)
    return lambda: (_quantize_mx(given, 8, "fp4_e2m1", axes=[-1], block_size=32, round="even"),)


def torch_cast(x):
    import torch

    given = tensor(x)
    return lambda: (given.to(torch.float8_e4m3fn).view(torch.uint8).numpy(),)


def ml_dtypes_cast(x):
    import ml_dtypes

    return lambda: (x.astype(ml_dtypes.float8_e4m3fn).view(np.uint8),)


def gfloat_quantize(x):
    from refnum.conformance.subjects.peers import gfloat_blocks

    quantize = gfloat_blocks.subjects()[0]["operations"]["quantize_mxfp4"]
    return lambda: quantize(x)


def gfloat_cast(x):
    from refnum.conformance.subjects.peers import gfloat_blocks

    return lambda: (gfloat_blocks.encode_e4m3(x),)


def gfloat_decode(codes):
    from refnum.conformance.subjects.peers import gfloat_blocks

    return lambda: (gfloat_blocks.decode_e4m3(codes),)


def model(function, *arguments, **keywords):
    """The golden model on the same arrays; the results as a tuple, as every contender gives them."""
    operation = getattr(refnum, function)

    def run():
        result = operation(*arguments, **keywords)
        return result if isinstance(result, tuple) else (result,)

    return run
