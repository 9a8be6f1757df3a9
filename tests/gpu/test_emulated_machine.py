"""The emulated machine on tiny kernels: each right one runs, and each wrong one ends with the error that names it."""

from __future__ import annotations

import ctypes
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import refnum
from refnum.errors import ArgumentError
from refnum.gpu import emulate
from refnum.gpu.emulate import EmulationError, arrays, build
from refnum.gpu.emulate.source import CompileError

if not emulate.available()[0]:
    pytest.skip(emulate.available()[1], allow_module_level=True)

HEADER = """
#include <cstdint>
struct Arguments { const uint32_t* x; uint32_t* out; uint32_t n; };
#define KERNEL extern "C" __global__ __launch_bounds__(64) void run(Arguments a)
"""


class Arguments(ctypes.Structure):
    _fields_ = [("x", ctypes.c_void_p), ("out", ctypes.c_void_p), ("n", ctypes.c_uint32)]


def launch(
    folder: Path, body: str, *, n: int = 64, blocks: tuple[int, int] = (1, 1), threads: int = 64, seed: int = 1,
    x: Any = None, out: Any = None,
) -> np.ndarray[Any, Any]:  # fmt: skip
    (folder / "tiny.cu").write_text(HEADER + body)
    emulator = emulate.Emulator(folder, seed)
    x = np.arange(n, dtype=np.uint32) if x is None else x
    out = emulate.array(np.zeros(n, np.uint32) if out is None else out, written=True)
    given = emulate.array(x)
    arguments = Arguments(arrays.address_of(given), arrays.address_of(out), n)
    emulator.launch(emulator.function("tiny", "run", 0), 0, blocks, threads, 0, arguments)
    return np.asarray(out)


RIGHT = {
    "indices": ("KERNEL { const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; if (i < a.n) a.out[i] = a.x[i]; }",
                lambda x: x),
    "shared": ("KERNEL { __shared__ uint32_t s[64]; s[threadIdx.x] = a.x[threadIdx.x]; __syncthreads();"
               " a.out[threadIdx.x] = s[63 - threadIdx.x]; }", lambda x: x[::-1]),
    "warp order": ("KERNEL { __shared__ uint32_t s[64]; const uint32_t t = threadIdx.x; s[t] = a.x[t]; __syncwarp();"
                   " a.out[t] = s[t ^ 31]; }", lambda x: x[np.arange(64) ^ 31]),
    "read before and after": ("KERNEL { __shared__ uint32_t s[64]; const uint32_t t = threadIdx.x; s[t] = a.x[t];"
                              " __syncwarp(); const uint32_t v = s[t ^ 31]; __syncwarp(); s[t] += v; a.out[t] = s[t];"
                              " }", lambda x: x + x[np.arange(64) ^ 31]),
    "shuffle xor": ("KERNEL { a.out[threadIdx.x] = __shfl_xor_sync(~0u, a.x[threadIdx.x], 5); }",
                    lambda x: x[np.arange(64) ^ 5]),
    "shuffle down": ("KERNEL { a.out[threadIdx.x] = __shfl_down_sync(~0u, a.x[threadIdx.x], 3, 8); }",
                     lambda x: np.where(np.arange(64) % 8 < 5, x + 3, x)),
    "shuffle up": ("KERNEL { a.out[threadIdx.x] = __shfl_up_sync(~0u, a.x[threadIdx.x], 1); }",
                   lambda x: np.where(np.arange(64) % 32 > 0, x - 1, x)),
    "shuffle": ("KERNEL { a.out[threadIdx.x] = __shfl_sync(~0u, a.x[threadIdx.x], 9); }",
                lambda x: np.arange(64) // 32 * 32 + 9),
    "votes": ("KERNEL { const uint32_t t = threadIdx.x; a.out[t] = __ballot_sync(~0u, a.x[t] % 2)"
              " + __any_sync(~0u, t == 40) + 2 * __all_sync(~0u, t < 32); }",
              lambda x: 0xAAAAAAAA + np.where(np.arange(64) < 32, 2, 1)),
    "half mask": ("KERNEL { const uint32_t t = threadIdx.x; if (t % 32 < 16)"
                  " a.out[t] = __reduce_max_sync(0xFFFFu, a.x[t]);"
                  " else a.out[t] = __reduce_min_sync(0xFFFF0000u, t); }",
                  lambda x: np.arange(64) // 32 * 32 + np.where(np.arange(64) % 32 < 16, 15, 16)),
    "count": ("KERNEL { a.out[threadIdx.x] = __syncthreads_count(a.x[threadIdx.x] < 5); }", lambda x: np.full(64, 5)),
    "atomic": ("KERNEL { if (threadIdx.x < 64) atomicAdd(a.out + 3, 2u); }", lambda x: np.where(x == 3, 128, 0)),
    "asm": ('KERNEL { uint32_t v, w; asm("ld.global.nc.u32 %0, [%1];" : "=r"(v) : "l"(a.x + threadIdx.x));'
            ' asm volatile("{\\n\\t.reg .pred p;\\n\\tmov.u32 %0, 7;\\n\\t}" : "=r"(w));'
            ' asm("prmt.b32 %0, %1, %2, 0x3214;" : "=r"(v) : "r"(v), "r"(w)); a.out[threadIdx.x] = v; }',
            lambda x: (x & ~np.uint32(0xFFFF)) >> 0 & 0xFF000000 | (x & 0xFF0000) | (x >> 8 & 0xFF) << 8 | 7),
    "copies": ("KERNEL { __shared__ __align__(16) uint32_t s[64]; const uint32_t t = threadIdx.x;"
               ' asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::'
               ' "r"((uint32_t)__cvta_generic_to_shared(s + t)),'
               ' "l"(a.x + t), "r"(t % 2 ? 4 : 0) : "memory"); asm volatile("cp.async.commit_group;" ::: "memory");'
               ' asm volatile("cp.async.wait_group 0;" ::: "memory"); __syncthreads(); a.out[t] = s[63 - t]; }',
               lambda x: np.where(x[::-1] % 2, x[::-1], 0)),
    "dynamic": ("extern __shared__ __align__(16) uint8_t room[];"
                " KERNEL { reinterpret_cast<uint32_t*>(room)[threadIdx.x] = a.x[threadIdx.x]; __syncthreads();"
                " a.out[threadIdx.x] = reinterpret_cast<uint32_t*>(room)[threadIdx.x ^ 1]; }",
                lambda x: x[np.arange(64) ^ 1]),
}  # fmt: skip


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", list(RIGHT))
def test_right(name: str, seed: int, tmp_path: Path) -> None:
    body, wanted = RIGHT[name]
    x = np.arange(64, dtype=np.uint32)
    assert np.array_equal(launch(tmp_path, body, x=x, seed=seed), wanted(x).astype(np.uint32))


BYTES = """__shared__ uint32_t s[64]; const uint32_t t = threadIdx.x;
    uint8_t *b = reinterpret_cast<uint8_t*>(s + t), *beside = reinterpret_cast<uint8_t*>(s + (t ^ 1));"""
WRONG = {
    "tail": ("KERNEL { a.out[blockIdx.x * 64 + threadIdx.x] = 1; }", "out of bounds.* out"),
    "read behind": ("KERNEL { a.out[threadIdx.x] = a.x[threadIdx.x + 1]; }", "load of 4 bytes out of bounds.* x"),
    "read before": ("KERNEL { a.out[threadIdx.x] = a.x[(int)threadIdx.x - 1]; }", "out of bounds: -4 bytes"),
    "asm behind": ('KERNEL { uint32_t v; asm("ld.global.nc.u32 %0, [%1+4];" : "=r"(v) : "l"(a.x + threadIdx.x));'
                   " a.out[threadIdx.x] = v; }", "load of 4 bytes out of bounds.* x"),
    "input": ("KERNEL { const_cast<uint32_t*>(a.x)[threadIdx.x] = 0; }", "store .*x.*: it is an input"),
    "wild": ("KERNEL { a.out[threadIdx.x] = *reinterpret_cast<const uint32_t*>(64); }", "is in no array"),
    "misaligned": ("KERNEL { if (threadIdx.x < 8) { uint4 v = *reinterpret_cast<const uint4*>(a.x + threadIdx.x);"
                   " a.out[threadIdx.x] = v.w; } }", "misaligned access"),
    "misaligned asm": ('KERNEL { uint32_t v, w; if (threadIdx.x < 63) asm("ld.global.nc.v2.u32 {%0, %1}, [%2];"'
                       ' : "=r"(v), "=r"(w) : "l"(a.x + threadIdx.x)); a.out[threadIdx.x] = v; }',
                       "misaligned load of 8 bytes"),
    "two writers": ("KERNEL { a.out[threadIdx.x / 2] = 1; }", "race: out"),
    "no barrier": ("KERNEL { __shared__ uint32_t s[64]; s[threadIdx.x] = 1;"
                   " a.out[threadIdx.x] = s[63 - threadIdx.x]; }",
                   "race|no thread of the CTA has written"),
    "warp for block": ("KERNEL { __shared__ uint32_t s[64]; s[threadIdx.x] = 1; __syncwarp();"
                       " a.out[threadIdx.x] = s[63 - threadIdx.x]; }", "race|no thread of the CTA has written"),
    "write after read": ("KERNEL { __shared__ uint32_t s[64]; s[threadIdx.x] = 1; __syncthreads();"
                         " a.out[threadIdx.x] = s[63 - threadIdx.x]; s[threadIdx.x] = 2; }", "race"),
    "write after the warp's read": ("KERNEL { __shared__ uint32_t s[64]; const uint32_t t = threadIdx.x; s[t] = 1;"
                                    " __syncwarp(); a.out[t] = s[t]; __syncwarp(); a.out[t] += s[t ^ 1]; s[t] = 2; }",
                                    "race"),
    "shuffle orders nothing": ("KERNEL { __shared__ uint32_t s[64]; s[threadIdx.x] = 1;"
                               " const uint32_t v = __shfl_xor_sync(~0u, 1u, 1);"
                               " a.out[threadIdx.x] = s[threadIdx.x ^ 1] + v;"
                               " }", "race"),
    "unwritten": ("KERNEL { __shared__ uint32_t s[64]; if (threadIdx.x) s[threadIdx.x] = 1; __syncthreads();"
                  " a.out[threadIdx.x] = s[threadIdx.x]; }", "no thread of the CTA has written"),
    "unwritten last byte": (f"KERNEL {{ {BYTES} b[0] = 1; b[1] = 1; b[2] = 1; a.out[t] = s[t]; }}",
                            "load of shared byte .*no thread of the CTA has written"),
    "last byte of another": (f"KERNEL {{ {BYTES} b[0] = 1; b[1] = 1; b[2] = 1; beside[3] = 1;"
                             " const uint32_t v = __shfl_xor_sync(~0u, 1u, 1); a.out[t] = s[t] + v; }",
                             "race: load of shared byte"),
    "last byte that another read": (f"KERNEL {{ {BYTES} s[t] = 1; __syncthreads(); const uint32_t v = beside[3];"
                                    " a.out[t] = __shfl_xor_sync(~0u, v, 1); s[t] = 2; }",
                                    "race: store to shared byte"),
    "barrier in a branch": ("KERNEL { if (threadIdx.x < 32) __syncthreads(); a.out[threadIdx.x] = 1; }",
                            "barrier that not all threads reach: 32 of 64 threads.*at __syncthreads"),
    "shuffle in a branch": ("KERNEL { if (threadIdx.x % 2) a.out[threadIdx.x] = __shfl_sync(~0u, 1u, 0); }",
                            "not all threads reach.*in a warp-wide operation"),
    "mask without self": ("KERNEL { a.out[threadIdx.x] = __shfl_sync(1u, 1u, 0); }", "lacks the calling lane"),
    "unlike masks": ("KERNEL { const uint32_t m = threadIdx.x % 2 ? ~0u : 0x55555555u;"
                     " a.out[threadIdx.x] = __shfl_sync(m, 1u, 0); }", "do not match"),
    "copy not waited for": ("KERNEL { __shared__ __align__(16) uint32_t s[64]; const uint32_t t = threadIdx.x;"
                            ' asm volatile("cp.async.ca.shared.global [%0], [%1], 4, 4;" :: '
                            '"r"((uint32_t)__cvta_generic_to_shared(s + t)), "l"(a.x + t) : "memory");'
                            " __syncthreads(); a.out[t] = s[t]; }", "a copy is under way"),
    "copy waited for too late": ("KERNEL { __shared__ __align__(16) uint32_t s[64]; const uint32_t t = threadIdx.x;"
                            ' asm volatile("cp.async.ca.shared.global [%0], [%1], 4, 4;" :: '
                            '"r"((uint32_t)__cvta_generic_to_shared(s + t)), "l"(a.x + t) : "memory");'
                            ' __syncthreads(); asm volatile("cp.async.wait_all;" ::: "memory");'
                            " a.out[t] = s[63 - t]; }",
                            "a copy is under way|race"),
    "array": ("KERNEL { uint32_t v[4] = {1, 2, 3, 4}; a.out[threadIdx.x] = v[threadIdx.x / 8]; }", "behind the end"),
    "shift": ("KERNEL { a.out[threadIdx.x] = 1u << threadIdx.x; }", "shift by"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(WRONG))
def test_wrong(name: str, tmp_path: Path) -> None:
    body, words = WRONG[name]
    blocks = (2, 1) if name == "tail" else (1, 1)
    with pytest.raises(EmulationError, match=f"run: .*({words})"):
        launch(tmp_path, body, blocks=blocks)
    assert np.array_equal(launch(tmp_path, RIGHT["shared"][0]), np.arange(64)[::-1])  # the machine lives on


def test_gaps_of_a_view_are_out_of_bounds(tmp_path: Path) -> None:
    x = np.zeros((64, 2), np.uint32)[:, 0]
    body = "KERNEL { a.out[threadIdx.x] = a.x[STEP * threadIdx.x]; }"
    assert not launch(tmp_path, "#define STEP 2\n" + body, x=x).any()
    with pytest.raises(EmulationError, match="byte 0 belongs to no element"):
        launch(tmp_path, "#define STEP 1\n" + body, x=x)


COPY = """
__device__ uint32_t shared(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
KERNEL {
    __shared__ __align__(16) uint32_t room[64];
    __shared__ uint64_t arrived;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(shared(&arrived)), "r"(1));
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(shared(&arrived)), "r"(BYTES)
                     : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                     :: "r"(shared(room)), "l"(a.x), "r"(256), "r"(shared(&arrived)) : "memory");
    }
    __syncthreads();
    uint32_t done = 0;
    while (WAIT && !done) {
        asm volatile("{\\n\\t.reg .pred p;\\n\\tmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\\n\\t"
                     "selp.u32 %0, 1, 0, p;\\n\\t}" : "=r"(done) : "r"(shared(&arrived)), "r"(0) : "memory");
    }
    a.out[threadIdx.x] = room[63 - threadIdx.x];
}
"""


def test_inputs_that_are_columns_of_one_array_lie_between_each_other() -> None:
    """Each spans elements of the other, which are no gaps for it."""
    both = np.arange(7 * 34, dtype=np.uint8).reshape(7, 34)
    call = emulate.subject_operations(emulate.Emulator())["dequantize_mxfp4"]
    want = refnum.dequantize_mxfp4(both[:, :32].copy(), both[:, 32:].copy())
    assert want.tobytes() == call(both[:, :32], both[:, 32:]).tobytes()


@pytest.mark.parametrize(
    ("bytes_", "wait", "words"),
    [(256, 1, ""), (256, 0, "a copy is under way"), (512, 1, "at an mbarrier")],
)
def test_bulk_copies(bytes_: int, wait: int, words: str, tmp_path: Path) -> None:
    body = f"#define BYTES {bytes_}\n#define WAIT {wait}\n{COPY}"
    if not words:
        assert np.array_equal(launch(tmp_path, body), np.arange(64)[::-1])
        return
    with pytest.raises(EmulationError, match=words):
        launch(tmp_path, body)


def test_what_does_not_compile_says_so(tmp_path: Path) -> None:
    for body, words in (
        ('KERNEL { asm volatile("frobnicate.b32 %0, 1;" : "=r"(*a.out)); }', "has no entry in gpu/emulate/ptx.hpp"),
        ("KERNEL { __frobnicate(); }", "__frobnicate"),
        ('KERNEL { asm("mov.b32 %0, 1;" : "=q"(*a.out)); }', "tiny.cu:5: the emulator cannot read the operand"),
    ):
        with pytest.raises(CompileError, match=words):
            launch(tmp_path, body)
    with pytest.raises(ArgumentError, match="there are tiny"):
        emulate.Emulator(tmp_path).function("large", "run", 0)


def test_a_cache_that_cannot_be_written_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REFNUM_CACHE", str(tmp_path / "file" / "below"))
    usable, reason = emulate.available.__wrapped__()
    assert not usable and reason.endswith("file/below (Not a directory): set REFNUM_CACHE to a writable folder")


def test_launches_that_a_device_refuses(tmp_path: Path) -> None:
    for threads, blocks in ((0, (1, 1)), (1025, (1, 1)), (64, (0, 1)), (64, (1 << 31, 1)), (64, (1, 65536))):
        with pytest.raises(EmulationError, match="allowed"):
            launch(tmp_path, RIGHT["indices"][0], threads=threads, blocks=blocks)
    shared = "KERNEL { __shared__ uint32_t s[WORDS]; s[threadIdx.x] = 1; __syncthreads(); a.out[threadIdx.x] = s[0]; }"
    assert launch(tmp_path, shared.replace("WORDS", str(48 << 8))).all()
    with pytest.raises(EmulationError, match="49160 bytes of shared memory; allowed are 49152"):
        launch(tmp_path, shared.replace("WORDS", str((48 << 8) + 2)))


def test_threads_register_arrays_while_others_look_at_all_of_them() -> None:
    stop, failed = threading.Event(), list[BaseException]()

    def register() -> None:
        while not stop.is_set():
            kept = [arrays.array(np.zeros(8, np.uint8)) for _ in range(50)]
            try:
                for x in kept:
                    place = arrays.address_of(x)
                    assert arrays.living()[place] is x
            except BaseException as error:
                failed.append(error)
                return

    threads = [threading.Thread(target=register) for _ in range(4)]
    for thread in threads:
        thread.start()
    stop.wait(0.5)
    stop.set()
    for thread in threads:
        thread.join()
    assert not failed


def test_the_header_of_every_unit_is_read_once_a_machine(tmp_path: Path) -> None:
    command, (version, _) = build.compiler()
    if "clang" in version:
        pytest.skip("clang takes no precompiled header for an #include")
    (tmp_path / "unit.cpp").write_text(f'#include "{build.HEADER}"\n')
    folder = build.precompiled_header()
    flags = [*build.COMMON, *build.KERNEL_FLAGS, f"-ffile-prefix-map={tmp_path}/=", f"-I{folder}", f"-I{build.MACHINE}"]
    words = [*command, *flags, "-H", "-c", "unit.cpp", "-o", "unit.o"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[0] == f"! {folder}/{build.HEADER}.gch"
