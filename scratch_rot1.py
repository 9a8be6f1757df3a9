import sys, os, json, time, concurrent.futures as cf
sys.path.insert(0, "benchmarks")
t0 = time.time()
H = [(256,16,768),(128,16,768),(256,16,1024),(128,16,1024),(256,32,768),(256,8,768),(128,32,1024)]
HD = [(256,4,1024),(128,4,1024),(256,4,768),(128,4,768),(256,2,1024)]
R = [(128,4,768),(256,4,768),(256,4,1024),(128,8,1024),(256,8,768),(128,4,1280)]
RD = [(128,4,1024),(256,4,1024)]
def build(job):
    from refnum.gpu.device import compile as C
    name, cut, extra = job
    C.compiled(name, defines=tuple(f"{a}={b}" for a, b in zip(("THREADS","UNROLL","RESIDENT"), cut)) + extra)
if __name__ == "__main__":
    from refnum.gpu.ops import hadamard
    from refnum.gpu.ops.rowwise import layout_defines
    jobs = {("hadamard_quantize_nvfp4", c, layout_defines(("bytes", l))) for c in H + HD for l in ("bytes",)}
    jobs |= {("hadamard_quantize_nvfp4", c, layout_defines(("bytes", "swizzled"))) for c in (H[0], HD[0])}
    jobs |= {("hadamard16", c, layout_defines(("bytes", "bytes"))) for c in R + RD}
    with cf.ProcessPoolExecutor(16) as pool:
        list(pool.map(build, sorted(jobs)))
    print("built", time.time() - t0, flush=True)
    import cupy, numpy as np
    import nvfp4
    from nvfp4 import M, K, spread, compare, copy_rate, seconds, ops, plans
    report = {}
    rng = np.random.default_rng(4)
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
        compare(report, calls[i:i + 40])
        print(time.time() - t0, flush=True)
        if time.time() - t0 > 110: break
    amax = cupy.asarray(np.array([40], np.float32))
    x = (cupy.random.default_rng(1).standard_normal((M, K), dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
    packed, scales, _ = ops.quantize_nvfp4(x, "TE", amax)
    out = (cupy.empty_like(packed), cupy.empty_like(scales), cupy.empty_like(amax))
    down = (packed.reshape(K, -1), scales.reshape(K, -1), cupy.empty_like(amax))
    values = cupy.empty_like(x)
    copy = copy_rate(M * K * 2)
    report["copy"] = copy; report["speeds"] = []
    odd = cupy.asarray(np.array([42], np.float32))
    lines = [("hadamard_quantize_nvfp4", H, "rotated NVFP4", lambda: ops.hadamard_quantize_nvfp4(x, tensor_amax=amax, out=out), 2.5625),
        ("hadamard_quantize_nvfp4", H[:1], "rotated NVFP4 TORCHAO", lambda: ops.hadamard_quantize_nvfp4(x, tensor_amax=amax, variant="TORCHAO", out=out), 2.5625),
        ("hadamard_quantize_nvfp4", H[:1], "rotated NVFP4 amax 42", lambda: ops.hadamard_quantize_nvfp4(x, tensor_amax=odd, out=out), 2.5625),
        ("hadamard_quantize_nvfp4", H, "rotated NVFP4 found", lambda: ops.hadamard_quantize_nvfp4(x, out=out), 4.5625),
        ("hadamard_quantize_nvfp4 down", HD, "columns", lambda: ops.hadamard_quantize_nvfp4(x, axis=0, tensor_amax=amax, out=down), 2.5625),
        ("hadamard_quantize_nvfp4 down", HD[:2], "columns found", lambda: ops.hadamard_quantize_nvfp4(x, axis=0, out=down), 4.5625),
        ("hadamard16", R, "rotated BF16", lambda: ops.hadamard16(x, out=values), 4),
        ("hadamard16 down", RD, "rotated BF16 columns", lambda: ops.hadamard16(x, axis=0, out=values), 4)]
    for kernel, cuts, label, call, size in lines:
        shipped = hadamard.TUNING[kernel]
        for cut in cuts:
            hadamard.TUNING[kernel] = hadamard.Cut(*cut); plans.forget()
            took = seconds(call)
            report["speeds"].append([label, cut, took, M * K * size / took / copy])
            print(f"{label:30s} {cut} {took*1e6:8.1f} us {M * K * size / took / copy:6.1%}", flush=True)
        hadamard.TUNING[kernel] = shipped; plans.forget()
    json.dump(report, open(os.environ["D"] + "/report.json", "w"))
    print(time.time() - t0)
