"""Every kernel compiles with our flags, here, without a GPU; what comes out flushes nothing and spills nothing.

What was compiled is taken from the user's cache, whose key is all that the machine code depends on.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from refnum.errors import ArgumentError, UnsupportedError
from refnum.gpu.device import compile as build
from refnum.gpu.ops import columns, compiled, hadamard, rowwise

try:
    build.nvrtc()
except UnsupportedError as error:
    pytest.skip(f"no kernel was compiled: {error}", allow_module_level=True)

KERNELS = build.kernel_names()


@pytest.fixture(scope="module", autouse=True)
def _ptx_of_the_same_compilation() -> Iterator[None]:
    """Keep the PTX that machine code was made from: to compile it again takes half as long as the machine code."""
    compiles, kept = build.Nvrtc.compile, {}

    def once(self: build.Nvrtc, source: build.Source, options: tuple[str, ...], output: str) -> bytes:
        key = source.digest, " ".join(options).replace("=sm_", "=compute_")
        if output == "ptx":
            return kept.pop(key, None) or compiles(self, source, options, output)
        with self.program(source, options) as program:
            kept[key] = self.read(program, "ptx")
            return self.read(program, output)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build.Nvrtc, "compile", once)
        yield


def test_machine_code_is_made_from_the_ptx_of_the_same_options() -> None:
    compiler, source, macros = build.nvrtc(), build.read_source("encode_elements"), defines("encode_elements")
    with compiler.program(source, build.options(defines=macros)) as program:
        of_machine_code = compiler.read(program, "ptx")
    with compiler.program(source, build.options(output="ptx", defines=macros)) as program:
        assert compiler.read(program, "ptx") == of_machine_code


def defines(name: str) -> tuple[str, ...]:
    return compiled.cuts(name)[-1]


# kernel file, macros, and the one function that ships with them ("" for all)
ORDERS = (*columns.TUNING.items(), *columns.RAGGED.items())
TURNING = [(function.rpartition("_")[0], order.defines, function) for function, order in ORDERS]
SHIPPED = [
    (name, cut, "") for name in KERNELS for cut in compiled.cuts(name) if name not in {file for file, *_ in TURNING}
]
SHIPPED += TURNING
# kernels compiled for other scale layouts: one of each way to find a scale's place
LAID = {"quantize_mxfp4": ("bytes", "packed_ue8m0"), "dequantize_fp8_tiles": ("gemm_float32", "bytes"),
        "fp8_to_mxfp4": ("float32", "swizzled")}  # fmt: skip
SHIPPED += [(name, (*defines(name), *rowwise.layout_defines(layouts)), "") for name, layouts in LAID.items()]


def test_every_kernel_ships() -> None:
    assert {name for name, _, _ in SHIPPED} == set(KERNELS)


INDEXED = {"hadamard16": 240, "hadamard_quantize_nvfp4": 272, "dge": 224, "quantize_nvfp4_variants": 112,
           "hadamard_quantize_nvfp4_variants": 256}  # fmt: skip
"""Kernels with arrays in local memory, and their bytes: the limbs of groups of more than 25 binades, with what a thread
keeps there during the call that sums them, and of slopes beside the middle of two numbers, which are rare; and a
block of NVFP4 that takes the rare path, element by element. The most of NVRTC 13.0 and 13.5."""
DOWN = {name.partition(" ")[0]: cut.defines for name, cut in hadamard.TUNING.items() if name.endswith(" down")}
"""Kernels whose launches down columns have macros of their own."""
ESTIMATES = {"dge": r"(lg2|ex2)\.approx\.ftz\.f32"}
"""Kernels with instructions that are not exact, whose results others correct."""


@pytest.mark.parametrize(("name", "macros", "function"), SHIPPED, ids=str)
def test_machine_code(name: str, macros: tuple[str, ...], function: str) -> None:
    image = build.compiled(name, defines=macros).read_bytes()
    assert image[:4] == b"\x7fELF" and function.encode() in image
    # a function that needs local memory has a section of that name
    assert b".nv.local." + function.encode() not in image
    found = frames(image)
    assert any(function in each for each in found)
    most = INDEXED.get(name, 0)
    spilled = {each: stack for each, stack in found.items() if function in each and stack > most}
    if name in DOWN:  # a subroutine's frame is that of its callers, which say whether they are launched under this cut
        launched = [each for each in found if ("_down" in each) == (macros == DOWN[name])]
        spilled = {each: stack for each, stack in spilled.items() if each in launched and "$__internal" not in each}
    assert spilled == {}, "registers are spilled"


@pytest.mark.parametrize("name", KERNELS)
def test_ptx(name: str) -> None:
    text = build.compiled(name, output="ptx", defines=defines(name)).read_text(errors="replace")
    code = "\n".join(line.split("//")[0] for line in text.splitlines())
    assert re.search(r"^\s*\.target sm_90a", code, re.M)
    assert len(re.findall(r"\.visible \.entry", code)) > 0
    if name in ESTIMATES:
        code, estimates = re.subn(ESTIMATES[name], "", code)
        assert estimates
    assert ".ftz" not in code, "a result or operand below the normal range would be flushed to zero"
    # a fused operation that a kernel asks for stands in its own assembly
    compiled = re.sub(r"// begin inline asm.*?// end inline asm", "", text, flags=re.S)
    fused = re.findall(r"^\s*(?:@%p\d+ )?(fma|mad\.(?:rn|rz|f)\S*)", compiled, re.M)
    assert not fused, f"a multiply and an add were fused: {set(fused)}"
    own = name in INDEXED
    assert own or (".local" not in code and "__local_depot" not in code), "an array went to local memory"
    assert ".approx" not in code


@pytest.mark.parametrize(("name", "macros", "function"), [unit for unit in TURNING if unit[0].startswith("mxfp4")])
def test_one_policy_ahead_of_all_copies(name: str, macros: tuple[str, ...], function: str) -> None:
    """What column kernels tell L2: one policy a kernel, made ahead of the copies that take it.

    The copies take their policy from a register that a warp's threads share. Made at every copy, inside branches, it
    ended in an illegal instruction on an H200.
    """
    text = build.compiled(name, output="ptx", defines=macros).read_text(errors="replace")
    (entry,) = (part for part in text.split(".visible .entry ")[1:] if re.match(rf"{function}\b", part))
    policies = re.findall(r"createpolicy\S* +(%rd\d+)", entry)
    assert len(policies) == 1
    assert entry.index("createpolicy") < entry.index("cp.async")
    takers = re.findall(r"cp\.async\S*cache_hint[^;]*, *(%rd\d+);", entry)
    assert takers and set(takers) == set(policies)


def frames(image: bytes) -> dict[str, int]:
    """Return bytes of stack by function, in machine code as it ships: what is spilled lies there."""
    (table,), (size, count, names) = struct.unpack_from("<Q", image, 40), struct.unpack_from("<HHH", image, 58)
    heads = [struct.unpack_from("<IIQQQQIIQQ", image, table + i * size) for i in range(count)]
    body = [image[head[4] : head[4] + head[5]] for head in heads]
    named = {body[names][head[0] :].split(b"\0")[0]: i for i, head in enumerate(heads)}
    symbols, facts, at = named[b".symtab"], body[named[b".nv.info"]], 0
    words, found = body[heads[symbols][6]], {}
    while at < len(facts):
        form, attribute, length = struct.unpack_from("<BBH", facts, at)
        if attribute == 0x11:  # EIATTR_FRAME_SIZE: a symbol, and bytes
            symbol, stack = struct.unpack_from("<II", facts, at + 4)
            start = struct.unpack_from("<I", body[symbols], 24 * symbol)[0]
            found[words[start:].split(b"\0")[0].decode()] = stack
        at += 4 + (length if form == 4 else 0)
    return found


def test_spills_are_seen() -> None:
    """Eight CTAs of 256 threads leave a thread 32 registers, which these functions cannot do with."""
    order = columns.TUNING["mxfp4_to_fp8_columns_max"]._replace(blocks=8)
    found = frames(build.compiled("mxfp4_to_fp8_columns", defines=order.defines).read_bytes())
    assert min(found.values()) > 0


def test_flags_reach_the_compiler() -> None:
    given = build.options("sm_90a", "ptx", ("PART=8",))
    assert given[0] == "--gpu-architecture=compute_90a"
    assert {"-ftz=false", "-fmad=false", "-DPART=8"} <= set(given)


def test_the_cache_is_keyed_by_options(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("REFNUM_CACHE", str(tmp_path))
    name = KERNELS[0]
    paths = {build.compiled(name, defines=(f"THREADS={n}",)) for n in (64, 128, 64)}
    assert len(paths) == 2 and all(path.exists() for path in paths)
    assert not list(next(iter(paths)).parent.glob("*.tmp"))


def another(number: int) -> build.Nvrtc:
    """A build of version 13.0 that compiles everything to a line that names it."""
    found = build.Nvrtc.__new__(build.Nvrtc)
    found.__dict__["version"] = "13.0"
    found.compile = lambda *given: f"// release 13.0, V13.0.{number}\n".encode()  # type: ignore[method-assign]
    return found


def test_builds_of_one_version_share_no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("REFNUM_CACHE", str(tmp_path))
    texts = []
    for number in (48, 88, 48):
        monkeypatch.setattr(build, "nvrtc", functools.partial(another, number))
        texts.append(build.compiled(KERNELS[0]).read_text().split("V")[1])
    assert texts == ["13.0.48\n", "13.0.88\n", "13.0.48\n"]
    assert len(list(tmp_path.iterdir())) == 2
    assert re.fullmatch(r"V\d+\.\d+\.\d+", build.Nvrtc().build)


def test_a_cache_is_read_by_others_and_made_anew_where_it_is_empty(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("REFNUM_CACHE", str(tmp_path / "new"))
    monkeypatch.setattr(build, "nvrtc", functools.partial(another, 48))
    path = build.compiled(KERNELS[0])
    assert path.stat().st_mode & 0o777 == 0o644
    path.write_bytes(b"")  # a machine that lost its power behind the rename
    assert build.compiled(KERNELS[0]) == path and path.stat().st_size > 0


def test_without_a_place_for_the_cache_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(build, "nvrtc", functools.partial(another, 48))
    monkeypatch.setenv("REFNUM_CACHE", str(tmp_path / "file" / "below"))
    with pytest.raises(UnsupportedError, match=r"cannot be kept in .*file/below.*: set REFNUM_CACHE"):
        build.compiled(KERNELS[0])
    for name in ("REFNUM_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(UnsupportedError, match=r"no home folder .*: set REFNUM_CACHE"):
        build.compiled(KERNELS[0])


def no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_named_errors(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    with pytest.raises(ArgumentError, match="does not exist"):
        build.read_source("nothing")
    with pytest.raises(UnsupportedError, match=r"compute capability 7\.0"):
        build.architecture((7, 0))
    (tmp_path / "broken.cu").write_text("int main( {")
    monkeypatch.setenv("REFNUM_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UnsupportedError, match=r"broken\.cu"):
        build.compiled("broken", kernels=tmp_path)
    assert not list((tmp_path / "cache").iterdir())


QUICKLY = ("--Ofast-compile=max",)
"""Without most optimisations, in a fifth of the time; an instruction that an architecture lacks is refused as well."""
LATER = {"quantize_nvfp4", "quantize_nvfp4_variants", "hadamard_quantize_nvfp4", "hadamard_quantize_nvfp4_variants"}
"""Kernels that convert to E4M3 by hardware, which sm_80 lacks."""


@pytest.mark.parametrize("more", [QUICKLY, pytest.param((), marks=pytest.mark.slow)], ids=["quickly", "as shipped"])
@pytest.mark.parametrize("arch", ["sm_80", "sm_100a"])
def test_other_architectures(arch: str, more: tuple[str, ...]) -> None:
    for name in KERNELS if arch != "sm_80" else sorted(set(KERNELS) - LATER):
        image = build.compiled(name, arch, defines=defines(name), flags=(*build.FLAGS, *more))
        assert image.stat().st_size > 0


@pytest.mark.parametrize("name", sorted(LATER))
def test_what_an_architecture_lacks_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedError, match=rf"{name}\.cu"):
        build.compiled(name, "sm_80", defines=defines(name), flags=(*build.FLAGS, *QUICKLY))
