"""Exhibits of conversions between layouts, of strides, padding and packing (the recipe's own bugs, family L)."""

from __future__ import annotations

from .exhibit import exhibit

BLOCKS, TILES, RECAST, COLUMNS, PAYLOAD = (
    f"../host/{family}.cpp" for family in ("blocks", "tiles", "recast", "columns", "payload")
)
_STORE = "            std::memcpy(packed + (r * k + b * BLOCK) / 2, out, 16);\n"
_FP8_LOOP = "    const bool saturate = e2m1_saturates(rule);\n    for (int64_t r = 0; r < m; ++r) {\n"
_SIGNS = (
    "    first = choose(look_up(table, magnitudes), nibble_signs_low(packed), BYTE_MAGNITUDES);\n"
    "    second = choose(look_up(table, magnitudes >> 16), nibble_signs_high(packed), BYTE_MAGNITUDES);\n"
)
_WORDS = (
    "}\n"
    "\n"
    "// Eight elements of a packed word -> two words of codes.\n"
    "REFNUM_HD void e4m3_words(uint32_t packed, const RecodeTable& table, uint32_t& first, uint32_t& second) {\n"
    "    const uint32_t magnitudes = packed & NIBBLE_MAGNITUDES;\n"
    "    first = look_up(table.bytes, magnitudes) | (nibble_signs_low(packed) & table.signs);\n"
    "    second = look_up(table.bytes, magnitudes >> 16) | (nibble_signs_high(packed) & table.signs);\n"
)
_RECODE = "    return {e4m3_table((int32_t)byte - (int32_t)tile), BYTE_SIGNS};\n" + _WORDS
_TILE = (
    "            for (int64_t r = top; r < bottom; ++r) {\n"
    "                for (int64_t c = 0; c < wide; c += BLOCK) {\n"
    "                    std::memcpy(in, words_at(x, kind, r * k + t * TILE + c), sizeof in);\n"
    "                    most = max_lanes"
)
_PLACE = "            std::memcpy(out + (start + r) * width, payload + row_map[taken + r] * width, (size_t)width);\n"
_TREE = (
    "        for (int i = 0; i < count && count < PART; ++i) terms.add(nodes[i]);\n        if (count < PART) break;\n"
)
EXHIBITS = (
    exhibit(
        "the recipe: zero becomes full scale",
        "mxfp4_to_fp8.cuh",
        _RECODE,
        "    Table bytes = e4m3_table((int32_t)byte - (int32_t)tile);\n    if (byte < tile) bytes.low |= 0xFE;\n"
        "    return {bytes, BYTE_SIGNS};\n" + _WORDS.replace(") | (", ") ^ ("),
        "RECIPE_ZERO_FULL_SCALE",
        "arXiv:2603.02731 github.com/anonymous-git-2026/MXFP4-Hopper",
        "",
        "mxfp4_to_fp8",
    ),
    exhibit(
        "the recipe: sign masked off",
        "mxfp4_to_fp8_columns.cuh",
        _SIGNS,
        "    first = look_up(table, magnitudes);\n    second = look_up(table, magnitudes >> 16);\n",
        "RECIPE_SIGN_LOST SIGN_LOST",
        "arXiv:2603.02731 github.com/anonymous-git-2026/MXFP4-Hopper",
        "",
        "mxfp4_to_fp8_columns",
    ),
    exhibit(
        "the recipe: scale byte wraps",
        "mxfp4_to_fp8.cuh",
        "tile_byte_max(uint32_t part) { return part == 0 ? ONE_BYTE : part > 7 ? part - 7 : 0; }",
        "tile_byte_max(uint32_t part) { return part == 0 ? 250 : (part - 7) & 0xFF; }",
        "RECIPE_SCALE_BYTE_WRAPS TILE_ZERO_BYTE",
        "arXiv:2603.02731 github.com/anonymous-git-2026/MXFP4-Hopper",
        "",
        "mxfp4_to_fp8",
    ),
    exhibit(
        "the recipe: empty blocks join the maximum",
        "mxfp4_to_fp8.cuh",
        "return byte == NAN_BYTE || is_empty(packed) ? 0 : byte + 1;",
        "return byte == NAN_BYTE ? 0 : byte + 1;",
        "EMPTY_BLOCK_JOINS_MAX",
        "github.com/anonymous-git-2026/MXFP4-Hopper",
        "",
        "mxfp4_to_fp8",
    ),
    exhibit(
        "NaN blocks join the maximum",
        "mxfp4_to_fp8.cuh",
        "return byte == NAN_BYTE || is_empty(packed) ? 0 : byte + 1;",
        "return is_empty(packed) ? 0 : byte + 1;",
        "NAN_BLOCK_JOINS_MAX EMPTY_BLOCK_JOINS_MAX",
        "github.com/anonymous-git-2026/MXFP4-Hopper",
        "",
        "mxfp4_to_fp8",
    ),
    exhibit(
        "FP8 flow: mantissa kept on underflow",
        "../host/columns.cpp",
        "        else if (!te) lower_rne<8>(w, lowering_distance(own, byte), tile[r]);\n",
        "",
        "UNDERFLOW_KEEPS_MANTISSA",
        "arXiv:2511.02302",
        "",
        "fp8_columns",
    ),
    exhibit(
        "subnormal results flushed",
        "e4m3.cuh",
        "    return {(lanes[0] >> 7) + lanes[1] * 2, (lanes[2] >> 7) + lanes[3] * 2};\n",
        "    for (uint32_t& x : lanes) x = choose(x, 0, lane_signs(x + 0x7C007C00u));\n"
        "    return {(lanes[0] >> 7) + lanes[1] * 2, (lanes[2] >> 7) + lanes[3] * 2};\n",
        "E4M3_FLUSHES_SUBNORMALS",
        "tenstorrent/tt-metal#51975",
        "D7",
        "mxfp4_to_fp8",
    ),
    exhibit(
        "nibbles swapped",
        "e2m1.cuh",
        "    return choose(even >> 4, odd, 0x0F0F0F0Fu);",
        "    return choose(odd >> 4, even, 0x0F0F0F0Fu);",
        "NIBBLE_ORDER",
        "pytorch/ao#3123 triton-lang/triton#5197 ROCm/composable_kernel#1889",
        "L1",
        "quantize_mxfp4",
    ),
    exhibit(
        "codes j and j + 16 share a byte",
        RECAST,
        _STORE,
        "            for (int j = 0; j < 16; ++j) {\n"
        "                const uint32_t low = out[j / 8] >> (4 * (j % 8)) & 15;\n"
        "                packed[(r * k + b * BLOCK) / 2 + j] = "
        "(uint8_t)(low | (out[j / 8 + 2] >> (4 * (j % 8)) & 15) << 4);\n            }\n",
        "SPLIT_HALF_ORDER",
        "ggml-org/llama.cpp#27315",
        "L2",
        "fp8_to_mxfp4",
    ),
    exhibit(
        "stride of the scales without the short tile",
        RECAST,
        "const uint32_t tile = scales[r * tiles(k) + b / 4];",
        "const uint32_t tile = scales[r * (tiles(k) - 1) + b / 4];",
        "PAD_STRIDE",
        "ROCm/aiter#2900 ROCm/rocm-libraries#12232 JustVugg/colibri#1675",
        "L15",
        "fp8_to_mxfp4",
    ),
    exhibit(
        "scale of the block before",
        RECAST,
        "const uint32_t tile = scales[r * tiles(k) + b / 4];",
        "const uint32_t tile = scales[(r * tiles(k) + b / 4 + m * tiles(k) - 1) % (m * tiles(k))];",
        "SCALE_OF_NEIGHBOUR",
        "pytorch/ao#4627 pytorch/ao#3357",
        "L9",
        "fp8_to_mxfp4",
    ),
    exhibit(
        "byte of a short tile from behind its end",
        RECAST,
        "            out_scales[r * tiles(k) + t] = (uint8_t)tile;\n        }\n    }\n}\n\n}",
        "            out_scales[r * tiles(k) + t] = (uint8_t)(t + 1 == tiles(k) && k % TILE ? 240 : tile);\n"
        "        }\n    }\n}\n\n}",
        "PAD_SCALE_READ",
        "triton-lang/triton#10190 NVIDIA/TransformerEngine#3070 vllm-project/vllm#49783",
        "L5 L7 L8",
        "mxfp4_to_fp8",
    ),
    exhibit(
        "only the first half of the rows",
        RECAST,
        _FP8_LOOP,
        "    const bool saturate = e2m1_saturates(rule);\n    std::memset(packed, 0, (size_t)(m * k / 2));\n"
        "    std::memset(out_scales, 0, (size_t)(m * k / BLOCK));\n"
        "    for (int64_t r = 0; r < (m > 2 ? m / 2 : m); ++r) {\n",
        "TAIL_OR_LATER_BATCH",
        "NVIDIA/cutlass#3511",
        "",
        "fp8_to_mxfp4",
    ),
    exhibit(
        "packed width taken for elements",
        BLOCKS,
        "        const DecodeTable table = decode_table(scales[b]);\n",
        "        DecodeTable table = decode_table(scales[b]);\n"
        "        if (2 * b >= blocks) table = {{0, 0}, {0, 0}, 0};\n",
        "LOGICAL_VS_PACKED_SHAPE TAIL_OR_LATER_BATCH",
        "foundation-model-stack/fastsafetensors#69 huggingface/safetensors#839",
        "",
        "dequantize_mxfp4",
    ),
    exhibit(
        "tile of 1 row taken for one of 128",
        TILES,
        _TILE,
        _TILE.replace(
            "int64_t r = top; r < bottom;",
            "int64_t r = top / 128 * 128; r < m && r < (tall > 1 ? bottom : top / 128 * 128 + 128);",
        ),
        "TILE_GEOMETRY",
        "flashinfer-ai/flashinfer#3882 vllm-project/vllm#42089",
        "L11",
        "quantize_fp8_tiles",
    ),
    exhibit(
        "blocks run on over experts",
        COLUMNS,
        "    for (int64_t i = 0; i < count; ++i) {\n        for (int64_t done",
        "    int64_t all = 0;\n    for (int64_t i = 0; i < count; ++i) all += splits[i];\n"
        "    splits = &all, count = 1;\n    for (int64_t i = 0; i < count; ++i) {\n        for (int64_t done",
        "RAGGED_BLOCK_RESTART",
        "github.com/anonymous-git-2026/MXFP4-Hopper",
        "",
        "fp8_columns",
    ),
    exhibit(
        "scales not swizzled",
        "layouts.cuh",
        "return block * 512 + (row % 32) * 16 + (row % 128) / 32 * 4 + column % 4;",
        "return block * 512 + (row % 128) * 4 + column % 4;",
        "SWIZZLE_LAYOUT",
        "flashinfer-ai/flashinfer#4574 ROCm/TransformerEngine#733 vllm-project/vllm#42118",
        "C18 L11 L13",
        "scale layouts",
    ),
    exhibit(
        "four bytes packed the other way round",
        "layouts.cuh",
        "return 4 * ((uint64_t)(column / 4) * stored_rows(layout, rows) + row) + column % 4;",
        "return 4 * ((uint64_t)(column / 4) * stored_rows(layout, rows) + row) + 3 - column % 4;",
        "UE8M0_PACK_ORDER",
        "deepseek-ai/DeepGEMM#337 deepseek-ai/DeepGEMM#403",
        "A20 L3 L14",
        "scale layouts",
    ),
    exhibit(
        "padding rows left as they were",
        PAYLOAD,
        "        std::memset(out + (start + rows) * width, 0, (size_t)((padded - rows) * width));",
        "        std::memset(out + (start + rows) * width, 0xCD, (size_t)((padded - rows) * width));",
        "PADDING_NOT_ZERO",
        "sgl-project/sglang#32385 NVIDIA/TransformerEngine#3041 vllm-project/vllm#49783",
        "L5 L6 L7",
        "permute_pad",
    ),
    exhibit(
        "row map as a scatter",
        PAYLOAD,
        _PLACE,
        "            std::memset(out + (start + r) * width, 0, (size_t)width);\n        }\n"
        "        for (int64_t j = 0; e + 1 == experts && j < taken + rows; ++j) {\n"
        "            if (row_map[j] < start + rows) std::memcpy(out + row_map[j] * width, payload + j * width, "
        "(size_t)width);\n",
        "ROW_MAP_INVERTED",
        "github.com/anonymous-git-2026/MXFP4-Hopper",
        "",
        "permute_pad",
    ),
    exhibit(
        "scales before the codes",
        PAYLOAD,
        "        std::memcpy(row, packed + r * blocks * PAYLOAD_CODES, (size_t)(blocks * PAYLOAD_CODES));\n"
        "        std::memcpy(row + blocks * PAYLOAD_CODES, scales + r * blocks, (size_t)blocks);\n",
        "        std::memcpy(row + blocks, packed + r * blocks * PAYLOAD_CODES, (size_t)(blocks * PAYLOAD_CODES));\n"
        "        std::memcpy(row, scales + r * blocks, (size_t)blocks);\n",
        "PAYLOAD_ORDER",
        "github.com/anonymous-git-2026/MXFP4-Hopper",
        "",
        "pack_payload",
    ),
    exhibit(
        "sum from left to right",
        "../host/swiglu.cpp",
        _TREE,
        "        for (int i = 0; i < count; ++i) {\n"
        "            terms.pending[0] = terms.count ? add_floats(terms.pending[0], nodes[i]) : nodes[i];\n"
        "            terms.count = 1;\n        }\n        continue;\n",
        "SUM_ORDER",
        "github.com/anonymous-git-2026/MXFP4-Hopper",
        "",
        "swiglu_backward",
    ),
    exhibit(
        "tile scale from eight elements of a thread",
        "memory.cuh",
        "for (int d = 1; d < lanes; d *= 2) both",
        "for (int d = 2; d < lanes; d *= 2) both",
        "AMAX_LANE_LEFT_OUT",
        "pytorch/ao#4627",
        "L9 L18",
        "quantize_fp8_tiles",
        "emulated",
    ),
    exhibit(
        "the recipe: no barrier before the maxima",
        "fp8_columns.cu",
        "all.largest[threadIdx.x / 32] = most;\n    __syncthreads();\n",
        "all.largest[threadIdx.x / 32] = most;\n",
        "",
        "github.com/anonymous-git-2026/MXFP4-Hopper pytorch/ao#4278",
        "L10",
        "fp8_columns",
        "emulated",
    ),
    exhibit(
        "tail read past the end",
        "memory.cuh",
        "chunk.exists = step < here;",
        "chunk.exists = true;",
        "",
        "NVIDIA/TransformerEngine#2346",
        "L8",
        "fp8_to_mxfp4",
        "emulated",
    ),
)
