#!/usr/bin/env python3
"""A simulation of an E2M1 decoder that speaks hexadecimal lines. It needs nothing of refnum."""

import sys

MAGNITUDES = (0x00000000, 0x3F000000, 0x3F800000, 0x3FC00000, 0x40000000, 0x40400000, 0x40800000, 0x40C00000)

rows, dtype = [], ""
for line in sys.stdin:
    words = line.split()
    if not words:  # a row of no codes
        rows.append([])
    elif words[0] == "case":
        rows, dtype = [], dict(word.split("=") for word in words[2:])["dtype"]
    elif words[0] == "end":
        if dtype != "float32" or any(code > 15 for row in rows for code in row):
            print("unsupported only float32, and codes of four bits", flush=True)
            continue
        for row in rows:
            print(" ".join(f"{MAGNITUDES[code & 7] | (code >> 3) << 31:08x}" for code in row))
        print("end", flush=True)
    elif words[0] not in ("in", "out"):
        rows.append([int(word, 16) for word in words])
