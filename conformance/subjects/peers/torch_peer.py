"""Make the subjects of a torch peer: one that runs on the CPU, and its twin on a GPU with `/cuda` after its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from refnum.errors import UnsupportedError

from . import foreign

CUDA = "/cuda"

Operations = Mapping[str, Callable[..., Any]]


def base_name(name: str) -> str:
    """Return a subject's name without the mark of its device: differences are known by it."""
    return name.removesuffix(CUDA)


def torch_subjects(
    name: str,
    operations: Operations,
    profiles: tuple[str, ...],
    probe: Callable[[], Any],
    describe: Callable[[], Mapping[str, Any]],
    supports: Callable[[str, str, Mapping[str, Any]], str] | None = None,
    devices: tuple[str, ...] = ("cpu", "cuda"),
) -> list[dict[str, Any]]:
    """Return the subject on each device.

    probe: imports what is needed, UnsupportedError when it cannot. describe: versions, called only when usable.
    """

    def available(device: str) -> Callable[[], tuple[bool, str]]:
        def check() -> tuple[bool, str]:
            reason = foreign.torch_here(device)
            if reason:
                return False, reason
            try:
                probe()
            except UnsupportedError as error:
                return False, str(error)
            return True, ""

        return check

    def described() -> dict[str, Any]:
        return {"torch": foreign.version("torch"), **describe()}

    marks = {"cpu": ("torch", ""), "cuda": ("torch-cuda", CUDA if "cpu" in devices else "")}
    return [
        {
            "name": name + marks[device][1],
            "kind": "peer",
            "arrays": marks[device][0],
            "operations": dict(operations),
            "profiles": profiles,
            "available": available(device),
            "describe": described,
            "supports": supports,
        }
        for device in devices
    ]


def scale_bytes(scales: Any) -> Any:
    """Return the E8M0 bytes of float32 powers of two as a byte tensor: bits shifted by 23, 2^-127 and below 0.

    What is no power of two is refused: it has no byte.
    """
    import torch

    bits = scales.float().contiguous().view(torch.int32)
    small = bits == 0x00400000
    if bool(((bits & 0x7FFFFF != 0) & ~small & (bits & 0x7F800000 != 0x7F800000)).any()):
        raise UnsupportedError("it gave a scale that is no power of two")
    return ((bits >> 23) & 255).to(torch.uint8)


def float32_only(operation: str, profile: str, params: Mapping[str, Any]) -> str:
    """Support function of a peer that is judged on float32 and bfloat16, not on float16."""
    return "it takes float32 and bfloat16" if params.get("input") == "float16" else ""
