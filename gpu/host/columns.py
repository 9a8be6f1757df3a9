"""The host build of the conversions from rows to columns (clauses N9 and N10)."""

from __future__ import annotations

from ..interface import columns
from ..interface.columns import UNDERFLOWS, Columns
from ..interface.recast import MODES
from .call import Array, HostCall, twin

__all__ = ["fp8_columns", "mxfp4_columns", "mxfp4_to_fp8_columns", "mxfp4_to_fp8_rows_columns"]


def _columns(call: HostCall, given: Columns[Array]) -> None:
    """Run the conversion of the call."""
    mode = (UNDERFLOWS if given.mode in UNDERFLOWS else MODES).index(given.mode)
    shape, splits = (given.x.shape[0], given.k), given.splits
    call.run(call.operation, given.x, given.scales, *shape, splits, splits.size, mode, *call.arrays)


mxfp4_to_fp8_columns = twin(columns.mxfp4_to_fp8_columns)(_columns)
mxfp4_to_fp8_rows_columns = twin(columns.mxfp4_to_fp8_rows_columns)(_columns)
mxfp4_columns = twin(columns.mxfp4_columns)(_columns)
fp8_columns = twin(columns.fp8_columns)(_columns)
