"""What the page of `moe_layer_page.py` says around its tables."""

INTRODUCTION = """# The layer on {ranks} GPUs

{ranks} {device} of one host, driver {driver}, torch {torch}, NCCL {nccl}, {date}; the model is {digest}.
Figures: [{name}.json]({name}.json). The layer is that of clause N20, its policies those of N28; what was measured
before is [on the layer's first page](2026-11-23-h200-layer.md).

```text
{commands}
```
"""
BITS = """A step, forward and backward, of each rank against the golden step of both ranks: every intermediate,
saved tensor and gradient but those of the router. Hidden 2048, ffn 1024, 16 experts, top 4, products of cuBLASLt.
*Even*: 1,024 tokens of each rank. *Ragged*: 2,048 tokens, all of the first rank, the second has none; skewed
routing, two experts without a token and two with one token. *Skewed*: the same routing, tokens on both ranks. *One
rank's experts*: 64 tokens of each rank, none of which goes to the second rank. The step was then taken again: the
last column names what differs between the two.
"""
EXCHANGE = """`all_to_all_single` of 32,768 rows of hidden 7168 from each rank, as many of them to each rank; the
formats by turns, fifteen rounds of five exchanges. The aims are 1.7 against FP8 and 3 against BF16.
"""
TIME = """Milliseconds of forward and backward of a rank, products of cuBLASLt: median (least) of twelve turns, in
each of which every policy takes one step unmeasured and two measured ones. Tokens are those of a rank.
"""
EQUAL = """How many more tokens a second one policy computes than another, turn by turn, with the 95 % interval of
the mean. `mxfp4` and `fp8` recompute alike; `mxfp4+fc2_input=store` saves no more than
`fp8+saved_activation=recompute`, and the aim there is +12.5 %.
"""
MEMORY = """MB above weights and tokens on the first rank, and in brackets measured by the allocator divided by
counted by `refnum.training.memory.step_memory`. *Bytes of a row*: saved for one routed row with an input of its
own. *Reserved* is what torch's allocator held of the device.
"""
WITNESS = """What a witness at its default rate costs under `mxfp4`: blocks of steps with it and without it by
turns, the mean over pairs of blocks with its 95 % interval. *Its own count* is the share of the time with it that
it says it took. Whole steps are not taken here: they have a share of 0.5 % of their own. The aim is 2 %.
"""
PROFILE = """One step on the first rank, {shape}, all kernels, by kind; three steps were recorded. *Least* is the
time that a kind needs at least: conversions their bytes at the speed of a copy, products the greater of their
operations at the speed of one large product and of their bytes, exchanges their bytes at the speed of one large
exchange, which includes no wait for the other rank. *Torch's own* are copies, fills, sorts and sums of the route,
which nothing bounds from below here.
"""
