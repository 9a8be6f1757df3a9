"""Reads an array of splits by one thread an expert, of 1024 threads: experts behind those get no row."""

import numpy as np

import refnum

THREADS = 1024


def permute_pad(payload, row_map, splits, align=32, *, out=None):
    """Gather; splits that are an array are read by 1024 threads."""
    rows, offsets = refnum.permute_pad(payload, row_map, splits, align)
    if isinstance(splits, np.ndarray) and splits.size > THREADS:
        rows[offsets[THREADS] :] = 0
    if out is None:
        return rows, offsets
    out[0][...], out[1][...] = rows, offsets
    return out


def unpermute(rows, row_map, splits, weights, tokens, align=32, *, out=None):
    """Sum; splits that are an array are read by 1024 threads."""
    if isinstance(splits, np.ndarray) and splits.size > THREADS:
        weights = np.ones(len(row_map), np.float32) if weights is None else weights.copy()
        weights[int(splits[:THREADS].sum()) :] = 0
    result = refnum.unpermute(rows, row_map, splits, weights, tokens, align)
    if out is None:
        return result
    out[...] = result
    return out


SUBJECT = {"operations": {"permute_pad": permute_pad, "unpermute": unpermute}}
FINDING = "splits-as-array"
