"""Profiles: named bundles of every choice that the standards leave open (clauses N2, N3, N4, N14)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from .arguments import require_choice
from .errors import ProfileError, shown

CHOICES: dict[str, tuple[str, ...]] = {
    "scale_rule": ("rceil", "floor", "ceil", "even"),
    "rounding": ("nearest", "toward_zero", "stochastic"),
    "ties": ("even", "away", "up", "down", "zero"),
    "overflow": ("saturate", "nan"),
    "negative_zero": ("keep", "drop"),
    "nonfinite": ("nosat", "satfinite"),
}
"""Field of a profile -> the literal values it may have."""

RANGES: dict[str, tuple[int, int, str]] = {
    "zero_scale": (0, 254, "a byte in 0..254"),
    "random_bits": (1, 24, "an integer in 1..24"),
    "amax_floor": (1, 0x7F7FFFFF, "the bits of a positive finite float32"),
}
"""Field of a profile that is an int -> least and largest value, and what they are."""

_WORDS = ("name", "description", "source")


@dataclass(frozen=True)
class Profile:
    """One answer to every open question of block quantisation; frozen, hashable, named.

    scale_rule     how the block scale follows from amax (N3)
    rounding, ties how an element is rounded (N2); `random_bits` is K of stochastic rounding
    overflow       `saturate`, or `nan`: the format's own Inf or NaN where it has one (N2)
    negative_zero  `keep`, or `drop`: a negative element that becomes zero gets code +0
    zero_scale     E8M0 byte of an MX block whose amax is 0 (N4)
    nonfinite      `nosat`: NaN or Inf in an MX block -> byte 255, codes 0; `satfinite`: Inf -> byte 254 and
                   saturated elements, NaN -> byte 255 (N4)
    amax_floor     None, or float32 bits: amax := max(amax, floor) before the scale rule (N3)
    """

    name: str
    scale_rule: str = "rceil"
    rounding: str = "nearest"
    ties: str = "even"
    random_bits: int = 8
    overflow: str = "saturate"
    negative_zero: str = "keep"
    zero_scale: int = 0
    nonfinite: str = "nosat"
    amax_floor: int | None = None
    description: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        for field in _WORDS:
            if not isinstance(getattr(self, field), str):
                raise ProfileError(f"a profile's {field} is {shown(getattr(self, field))}; allowed is text")
        for field, allowed in CHOICES.items():
            require_choice(f"profile {shown(self.name)}: {field}", getattr(self, field), allowed, ProfileError)
        for field, (least, most, what) in RANGES.items():
            value = getattr(self, field)
            if value is None and field == "amax_floor":
                continue
            if type(value) is not int or not least <= value <= most:
                raise ProfileError(f"profile {shown(self.name)}: {field}={shown(value)} is not {what}")

    def replace(self, **changes: object) -> Profile:
        """Return a copy with some fields changed; give it its own `name`."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]


HOPPER = Profile(
    "HOPPER",
    description="The default: smallest scale that needs no saturation, ties to even, canonical NaN blocks",
    source="refnum clauses N3 and N4; the scale rule of the FP4 recipe for Hopper (arXiv:2603.02731)",
)

_TABLE = (
    HOPPER,
    Profile("OCP", scale_rule="floor", description="The scale rule of the standard's section 6.3",
            source="OCP Microscaling Formats (MX) v1.0, 6.3"),
    Profile("CEIL", scale_rule="ceil", description="Exponent of amax rounded up whenever amax is no power of two",
            source="torchao ScaleCalculationMode.CEIL"),
    Profile("EVEN", scale_rule="even", description="amax rounded half up to the element's mantissa width, then floor",
            source="torchao ScaleCalculationMode.EVEN; AMD Quark even_round"),
    Profile("TE", nonfinite="satfinite", description="TransformerEngine's kernels and CUDA's __NV_SATFINITE path",
            source="TransformerEngine float_to_e8m0 and cvt.rn.satfinite.e2m1x2"),
    Profile("TE_PYTHON", nonfinite="satfinite", negative_zero="drop",
            description="TransformerEngine's Python reference on finite data: the sign of zero is lost",
            source="TransformerEngine cast_to_fp4x2"),
    Profile("RECIPE", zero_scale=94, amax_floor=0x3024ED3F,
            description="The recipe's released quantiser on finite data: scale never below 2^-33, zero block 94",
            source="per_token_quant_mxfp4.cu of the code released with arXiv:2603.02731: max(amax/6, 1e-10)"),
    Profile("DEEPGEMM", ties="zero", negative_zero="drop", zero_scale=112, amax_floor=0x38D1B717,
            description="DeepGEMM's Python FP4 cast on finite data: amax at least 1e-4, ties toward zero",
            source="DeepGEMM per_token_cast_to_fp4"),
    Profile("MICROXCALING", scale_rule="floor", ties="away", negative_zero="drop",
            description="microxcaling's default rounding ('nearest' is half away from zero)",
            source="microsoft/microxcaling _quantize_mx, round='nearest'"),
    Profile("MICROXCALING_EVEN", scale_rule="floor", negative_zero="drop",
            description="microxcaling with round='even'", source="microsoft/microxcaling _quantize_mx, round='even'"),
    Profile("TRITON_GEN1", ties="away", description="Triton's first downcast_to_mxfp: ties up in magnitude",
            source="triton_kernels mxfp.py before triton-lang/triton#8110"),
    Profile("MODELOPT", ties="zero", description="ModelOpt's PyTorch packer on non-zero finite data: ties toward zero",
            source="NVIDIA/Model-Optimizer MXFP4QTensor.quantize"),
    Profile("MLX", ties="zero", negative_zero="drop", zero_scale=127,
            description="MLX's CPU back end on normal finite data", source="mlx 0.32 quantize(mode='mxfp4'), CPU"),
    Profile("STOCHASTIC", rounding="stochastic", description="HOPPER with stochastic rounding, eight bits an element",
            source="PTX cvt.rs; fp4 training recipes"),
)  # fmt: skip

PROFILES: dict[str, Profile] = {p.name: p for p in _TABLE}
OCP = PROFILES["OCP"]


def get_profile(profile: Profile | str) -> Profile:
    """Return the profile of a name; a Profile is returned as it is.

    A name is one of `PROFILES`, or a custom profile (N14): one of them and the fields that differ, as in
    `OCP+ties=away+zero_scale=127`. Raises ProfileError naming the known profiles, fields or values, or the type of
    what is neither.
    """
    if isinstance(profile, Profile):
        return profile
    if not isinstance(profile, str):
        raise ProfileError(
            f"profile is {shown(profile)}, of type {type(profile).__name__}; give a Profile or the name of one, "
            f"known are {', '.join(PROFILES)}"
        )
    base, *changes = profile.split("+")
    if base not in PROFILES:
        raise ProfileError(f"profile {shown(profile)} is not known; known are {', '.join(PROFILES)}")
    if not changes:
        return PROFILES[base]
    fields = dict(_change(profile, change) for change in changes)
    if len(fields) < len(changes):
        raise ProfileError(f"profile {shown(profile)} names a field twice; give each once")
    return Profile(**{**_fields(PROFILES[base]), **fields, "name": profile})  # type: ignore[arg-type]


def deterministic(profile: Profile | str, operation: str) -> Profile:
    """Return the profile as `get_profile`; ProfileError for a stochastic one, which `operation` does not take."""
    profile = get_profile(profile)
    if profile.rounding == "stochastic":
        raise ProfileError(f"profile {profile.name} is stochastic; {operation} takes a deterministic one")
    return profile


def profile_name(profile: Profile) -> str:
    """Return the name under which `get_profile` gives a profile with the same fields: `BASE` or `BASE+field=value`.

    The base is the profile of that name, else HOPPER; only fields that differ from it are written.
    """
    base = PROFILES.get(profile.name.partition("+")[0], HOPPER)
    return "+".join([base.name, *(f"{k}={v}" for k, v in _fields(profile).items() if v != getattr(base, k))])


def _fields(profile: Profile) -> dict[str, object]:
    return {
        field.name: getattr(profile, field.name) for field in dataclasses.fields(Profile) if field.name not in _WORDS
    }


def _change(profile: str, change: str) -> tuple[str, object]:
    name, equals, text = change.partition("=")
    known = _fields(HOPPER)
    if name not in known or not equals:
        raise ProfileError(
            f"profile {shown(profile)}: {shown(change)} is no FIELD=VALUE; fields are {', '.join(known)}"
        )
    if name in CHOICES:
        return name, text
    if name == "amax_floor" and text == "None":
        return name, None
    try:
        return name, int(text, 0)
    except ValueError:
        raise ProfileError(f"profile {shown(profile)}: {name}={shown(text)} is no integer") from None
