"""Shapes of public models, from their published `config.json`: what kernels meet outside of tests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Model:
    """Sizes of one model.

    hidden: columns between layers. wide: those within a dense feed-forward layer, 0 without one. expert: those within
    an expert, 0 without experts. experts, top: routed experts, and how many a token takes. source: its repository at
    huggingface.co, whose `config.json` says so.
    """

    hidden: int
    wide: int
    expert: int
    experts: int
    top: int
    source: str


MODELS = (
    Model(7168, 18432, 2048, 256, 8, "deepseek-ai/DeepSeek-V3"),
    Model(5120, 12288, 1536, 160, 6, "deepseek-ai/DeepSeek-V2"),
    Model(2048, 10944, 1408, 64, 6, "deepseek-ai/DeepSeek-V2-Lite"),
    Model(2880, 0, 2880, 128, 4, "openai/gpt-oss-120b"),
    Model(2880, 0, 2880, 32, 4, "openai/gpt-oss-20b"),
    Model(7168, 18432, 2048, 384, 8, "moonshotai/Kimi-K2-Instruct"),
    Model(4096, 0, 14336, 8, 2, "mistralai/Mixtral-8x7B-v0.1"),
    Model(6144, 0, 16384, 8, 2, "mistralai/Mixtral-8x22B-v0.1"),
    Model(4096, 12288, 1536, 128, 8, "Qwen/Qwen3-235B-A22B"),
    Model(2048, 6144, 768, 128, 8, "Qwen/Qwen3-30B-A3B"),
    Model(2048, 5120, 512, 512, 10, "Qwen/Qwen3-Next-80B-A3B-Instruct"),
    Model(6144, 8192, 2560, 160, 8, "Qwen/Qwen3-Coder-480B-A35B-Instruct"),
    Model(3584, 18944, 2560, 64, 8, "Qwen/Qwen2-57B-A14B"),
    Model(2048, 5632, 1408, 60, 4, "Qwen/Qwen1.5-MoE-A2.7B"),
    Model(5120, 12288, 1536, 160, 8, "zai-org/GLM-4.5"),
    Model(4096, 10944, 1408, 128, 8, "zai-org/GLM-4.5-Air"),
    Model(5120, 16384, 8192, 16, 1, "meta-llama/Llama-4-Scout-17B-16E"),
    Model(5120, 16384, 8192, 128, 1, "meta-llama/Llama-4-Maverick-17B-128E"),
    Model(6144, 0, 9216, 32, 2, "MiniMaxAI/MiniMax-Text-01"),
    Model(3072, 0, 1536, 256, 8, "MiniMaxAI/MiniMax-M2"),
    Model(2048, 0, 1024, 64, 8, "allenai/OLMoE-1B-7B-0924"),
    Model(1536, 0, 512, 40, 8, "ibm-granite/granite-3.0-3b-a800m-base"),
    Model(6144, 0, 10752, 16, 4, "databricks/dbrx-base"),
    Model(4096, 0, 6400, 16, 2, "microsoft/Phi-3.5-MoE-instruct"),
    Model(7168, 0, 4864, 128, 2, "Snowflake/snowflake-arctic-base"),
    Model(6144, 0, 32768, 8, 2, "xai-org/grok-1"),
    Model(8192, 28672, 3584, 64, 8, "baidu/ERNIE-4.5-300B-A47B-PT"),
    Model(4096, 14336, 0, 0, 0, "meta-llama/Llama-3.1-8B"),
    Model(8192, 28672, 0, 0, 0, "meta-llama/Llama-3.1-70B"),
    Model(16384, 53248, 0, 0, 0, "meta-llama/Llama-3.1-405B"),
    Model(8192, 29568, 0, 0, 0, "Qwen/Qwen2.5-72B"),
    Model(4608, 36864, 0, 0, 0, "google/gemma-2-27b"),
)
