import sys, os, json, time, subprocess, concurrent.futures as cf
sys.path.insert(0, "benchmarks")
t0 = time.time()
H = [(256,16,768),(128,16,768),(256,16,1024),(128,16,1024),(256,8,768),(256,32,768),(256,4,768)]
H4 = [(256,16,768),(128,16,768),(256,16,1024)]
HD = [(128,8,768),(128,8,1024),(128,4,768),(128,8,640),(256,4,1024),(128,8,512)]
R = [(256,4,768),(256,2,768),(128,4,768),(256,8,768),(512,4,1024),(256,6,768)]
RD = [(128,4,1024),(256,4,1024)]
T = [(), ("RESIDENT=512",), ("RESIDENT=640",), ("RESIDENT=768",), ("RESIDENT=896",), ("RESIDENT=768","CHOOSE=1"), ("CHOOSE=1",)]
names = ("THREADS","UNROLL","RESIDENT")
def build(job):
    from refnum.gpu.device import compile as C
    C.compiled(job[0], defines=job[1])
def cutdef(c): return tuple(f"{a}={b}" for a, b in zip(names, c))
if __name__ == "__main__":
    from refnum.gpu.ops import hadamard, tetrajet
    from refnum.gpu.ops.rowwise import layout_defines
    L = lambda l: layout_defines(("bytes", l))
    jobs = [("hadamard_quantize_nvfp4", cutdef(c) + L("bytes")) for c in H + HD]
    jobs += [("hadamard_quantize_nvfp4", cutdef(c) + ("TILES_AHEAD=4",) + L("bytes")) for c in H4]
    jobs += [("hadamard_quantize_nvfp4", cutdef(c) + L("swizzled")) for c in (H[0], HD[0])]
    jobs += [("hadamard16", cutdef(c) + L("bytes")) for c in R + RD]
    jobs += [(f"quantize_tetrajet_down{w}", ("THREADS=128",) + t) for t in T for w in ("_stochastic", "") if w or "CHOOSE=1" not in t]
    with cf.ProcessPoolExecutor(16) as pool: list(pool.map(build, jobs))
    print("built", time.time() - t0, flush=True)
    import cupy, numpy as np, nvfp4
    from nvfp4 import M, K, spread, compare, copy_rate, seconds, ops, plans
    report = {}
    rng = np.random.default_rng(5)
    calls = []
    for shape in ((256, 7168), (330, 1040)):
        for binades in (0, 5, 12, 13, 18, 19, 26, 255, -1):
            for axis in (-1, 0):
                x = spread(rng, shape, binades) if binades >= 0 else (rng.standard_normal(shape, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
                given = {"x": x, "signs": int(rng.integers(0, 1 << 16)), "axis": axis}
                calls.append(("hadamard16", given, f"{shape} {axis} {binades}"))
                for amax in (None, 11.7, 42.0, 2688.0) if binades in (-1, 5) else (None, 11.7):
                    for variant in ("TE", "TORCHAO", "TE_2_8") if binades == -1 else ("TE",):
                        more = {"tensor_amax": None if amax is None else np.array([amax], np.float32), "variant": variant, "layout_out": "swizzled" if binades == 13 else "bytes"}
                        calls.append(("hadamard_quantize_nvfp4", {**given, **more}, f"{shape} {axis} {binades} {amax} {variant}"))
    for i in range(0, len(calls), 40):
        compare(report, calls[i:i + 40]); print(time.time() - t0, flush=True)
        if time.time() - t0 > 60: break
    amax = cupy.asarray(np.array([40], np.float32)); odd = cupy.asarray(np.array([42], np.float32))
    x = (cupy.random.default_rng(1).standard_normal((M, K), dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
    packed, scales, _ = ops.quantize_nvfp4(x, "TE", amax)
    out = (cupy.empty_like(packed), cupy.empty_like(scales), cupy.empty_like(amax))
    down = (packed.reshape(K, -1), scales.reshape(K, -1), cupy.empty_like(amax))
    values = cupy.empty_like(x)
    copy = copy_rate(M * K * 2)
    report["copy"] = copy; report["speeds"] = []
    def line(label, cut, call, size):
        plans.forget(); took = seconds(call)
        report["speeds"].append([label, cut, took, M * K * size / took / copy])
        print(f"{label:28s} {cut} {took*1e6:8.1f} us {M * K * size / took / copy:6.1%}", flush=True)
    class Ahead(hadamard.Cut):
        @property
        def defines(self): return cutdef(self) + ("TILES_AHEAD=4",)
    q = lambda amax=amax, **k: (lambda: ops.hadamard_quantize_nvfp4(x, tensor_amax=amax, out=out, **k))
    qd = lambda amax=amax: (lambda: ops.hadamard_quantize_nvfp4(x, axis=0, tensor_amax=amax, out=down))
    N = "hadamard_quantize_nvfp4"
    lines = [(N, H, "rows", q(), 2.5625), (N, [Ahead(*c) for c in H4], "rows ahead 4", q(), 2.5625),
        (N, H[:1], "rows TORCHAO", q(variant="TORCHAO"), 2.5625), (N, H[:1], "rows amax 42", q(odd), 2.5625),
        (N, H[:1], "rows swizzled", lambda: ops.hadamard_quantize_nvfp4(x, tensor_amax=amax, layout_out="swizzled"), 2.5625),
        (N, H, "rows found", q(None), 4.5625), (N, [Ahead(*c) for c in H4], "rows found ahead 4", q(None), 4.5625),
        (N + " down", HD, "columns", qd(), 2.5625), (N + " down", HD, "columns found", qd(None), 4.5625),
        ("hadamard16", R, "BF16 rows", lambda: ops.hadamard16(x, out=values), 4),
        ("hadamard16 down", RD, "BF16 columns", lambda: ops.hadamard16(x, axis=0, out=values), 4)]
    for kernel, cuts, label, call, size in lines:
        shipped = hadamard.TUNING[kernel]
        for cut in cuts:
            hadamard.TUNING[kernel] = cut if isinstance(cut, hadamard.Cut) else hadamard.Cut(*cut)
            try: line(label, tuple(cut), call, size)
            except Exception as error: print(label, cut, repr(error)[:200], flush=True)
        hadamard.TUNING[kernel] = shipped
    half = (x.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float16)
    class Down(tetrajet.Down):
        more = ()
        @property
        def defines(self): return (f"THREADS={self.threads}",) + Down.more
    kept = dict(tetrajet.DOWN)
    for more in T:
        Down.more = more
        for n in kept: tetrajet.DOWN[n] = Down(128)
        for what, v in (("BF16", x), ("FP16", half)):
            line(f"tetrajet columns key {what}", more, lambda: ops.quantize_tetrajet(v, axis=0, philox=(5, 1, 2, 0)), 2.53125)
            if "CHOOSE=1" not in more: line(f"tetrajet columns {what}", more, lambda: ops.quantize_tetrajet(v, axis=0), 2.53125)
    tetrajet.DOWN.update(kept)
    json.dump(report, open(os.environ["D"] + "/report.json", "w"))
    print(time.time() - t0)
