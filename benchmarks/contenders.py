"""What the golden model is timed beside: calls of `subjects.peers` over the same arrays, made ready outside the clock.

A contender that is not installed is left out with the reason. torchao and microxcaling are no dependencies of the
project: put them on PYTHONPATH (microxcaling is a checkout whose package is `mx`).
"""

import importlib.metadata
import importlib.util
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import refnum
from refnum.conformance.subjects.peers import gfloat_blocks, microxcaling_mx, ml_dtypes_casts, torch_dtypes, torchao_mx

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


def numpy(results):
    """A call's torch results as NumPy arrays, without a copy."""
    return tuple(result.numpy() for result in (results if isinstance(results, tuple) else (results,)))


def formulas():
    """The plain formulas; they import torch."""
    from refnum.conformance.subjects.peers import formulas

    return formulas


def torchao_quantize(x, mode):
    quantize, given = torchao_mx.quantisers(mode)["quantize_mxfp4"], tensor(x)
    return lambda: numpy(quantize(given))


def torchao_dequantize(packed, scales):
    given = tensor(packed), tensor(scales)
    return lambda: numpy(torchao_mx.dequantize_mxfp4(*given))


def torchao_fp8_tiles(x):
    """torchao's own torch reference of the 1x128 cast; its scales are float32, no powers of two."""
    from torchao.prototype.blockwise_fp8_training.kernels import torch_blockwise_scale_act_quant_lhs

    given = tensor(x)
    return lambda: torch_blockwise_scale_act_quant_lhs(given)


def torch_fp8_tiles(x):
    """The 1x128 cast with power-of-two scales in plain torch operations."""
    given = tensor(x)
    return lambda: numpy(formulas().quantize_fp8_tiles(given))


def torch_fp8_dequantize(codes, scales):
    import torch

    given = tensor(codes), tensor(scales)
    return lambda: numpy(formulas().dequantize_fp8_tiles(*given, torch.float32))


def torchao_fp8_to_mxfp4(codes, scales):
    """No library has the direct conversion: torch dequantises, torchao quantises."""
    import torch

    quantize, given = torchao_mx.quantisers("RCEIL")["quantize_mxfp4"], (tensor(codes), tensor(scales))
    return lambda: numpy(quantize(formulas().dequantize_fp8_tiles(*given, torch.float32)))


def torchao_mxfp4_to_fp8(packed, scales, columns=False):
    """No library has the direct conversion: torchao dequantises, its torch reference quantises (float32 scales)."""
    from torchao.prototype.blockwise_fp8_training.kernels import torch_blockwise_scale_act_quant_lhs

    given = tensor(packed), tensor(scales)

    def run():
        values = torchao_mx.dequantize_mxfp4(*given)
        return torch_blockwise_scale_act_quant_lhs(values.t().contiguous() if columns else values)

    return run


def torch_fp8_columns(codes, scales):
    import torch
    from torchao.prototype.blockwise_fp8_training.kernels import torch_blockwise_scale_act_quant_lhs

    given = tensor(codes), tensor(scales)
    values = lambda: formulas().dequantize_fp8_tiles(*given, torch.float32)  # noqa: E731
    return lambda: torch_blockwise_scale_act_quant_lhs(values().t().contiguous())


def microxcaling_quantize(x):
    """microxcaling quantises and dequantises at once: it returns values, never bytes."""
    quantize, given = microxcaling_mx.quantiser("even"), tensor(x)
    return lambda: (quantize(given),)


def torch_cast(x):
    given = tensor(x)
    return lambda: numpy(torch_dtypes.encode_e4m3(given))


def ml_dtypes_cast(x):
    return lambda: (ml_dtypes_casts.encode_e4m3(x),)


def gfloat_quantize(x):
    quantize = gfloat_blocks.subjects()[0]["operations"]["quantize_mxfp4"]
    return lambda: quantize(x)


def gfloat_cast(x):
    return lambda: (gfloat_blocks.encode_e4m3(x),)


def model(function, *arguments, **keywords):
    """The golden model on the same arrays; the results as a tuple, as every contender gives them."""
    operation = getattr(refnum, function)

    def run():
        result = operation(*arguments, **keywords)
        return result if isinstance(result, tuple) else (result,)

    return run
