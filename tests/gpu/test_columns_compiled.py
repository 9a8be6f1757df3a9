"""What column kernels tell L2: one policy a kernel, made ahead of the copies that take it.

The copies take their policy from a register that a warp's threads share. Made at every copy, inside branches, it ended
in an illegal instruction on an H200.
"""

from __future__ import annotations

import re

import pytest

from refnum.errors import UnsupportedError
from refnum.gpu.device import compile as build
from refnum.gpu.ops import columns

try:
    build.nvrtc()
except UnsupportedError as error:
    pytest.skip(f"no kernel was compiled: {error}", allow_module_level=True)

MXFP4 = [
    (name, order.defines)
    for table in (columns.TUNING, columns.RAGGED, columns.SEGMENTS)
    for name, order in table.items()
    if name.startswith("mxfp4")
]


@pytest.mark.parametrize(("name", "defines"), MXFP4)
def test_one_policy_ahead_of_all_copies(
    name: str, defines: tuple[str, ...], tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFNUM_CACHE", str(tmp_path))
    text = build.compiled(name.rpartition("_")[0], output="ptx", defines=defines).read_text(errors="replace")
    (entry,) = (part for part in text.split(".visible .entry ")[1:] if re.match(rf"{name}\b", part))
    policies = re.findall(r"createpolicy\S* +(%rd\d+)", entry)
    assert len(policies) == 1
    assert entry.index("createpolicy") < entry.index("cp.async")
    takers = re.findall(r"cp\.async\S*cache_hint[^;]*, *(%rd\d+);", entry)
    assert takers and set(takers) == set(policies)
