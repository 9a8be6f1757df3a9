"""What of our Python is mutated, and what its mutants are asked: the golden model and the comparator."""

from __future__ import annotations

from dataclasses import dataclass

from refnum.conformance.subjects.arrays import FAR


@dataclass(frozen=True)
class Target:
    """Modules that are mutated, and what a mutant is asked.

    asked: the function of `python` that says how many questions there are. ask: the one that returns what a
    process answers wrongly to the question of a number, or nothing. tests: what survivors are run against. memory:
    bytes that a process may take beside the questions, while it records and while it judges.
    """

    name: str
    files: tuple[str, ...]
    asked: str
    ask: str
    tests: tuple[str, ...] = ()
    memory: int = 4 << 30


TARGETS = (
    Target(
        "model",
        tuple(f"refnum/{name}.py" for name in (
            "rounding", "scales", "casts", "codec", "blocks", "tiles", "recast", "columns", "swiglu", "softfloat",
            "narrow", "philox", "layouts", "payload", "formats", "arguments", "nvfp4", "nvfp4_codes", "nvfp4_scales",
            "nvfp4_errors", "division", "hadamard", "exact_sums", "tetrajet", "tetrajet_v2", "logarithmic",
            "logarithmic_tables", "logarithms", "oscillation", "estimators", "roots", "tensor_core", "product",
            "product_steps", "updates", "square_roots", "integer", "integer_steps", "llm_quantisers", "exact_means",
            "optimisers", "schedules", "stable_spam", "gradients", "bounds", "arrays", "interchange", "environment",
            "errors", "digest", "profiles", "make_silu", "explanation", "steps", "scalar_steps", "nvfp4_explained",
            "hadamard_explained", "tetrajet_explained", "logarithmic_explained", "estimators_explained",
            "oscillation_explained", "tetrajet_v2_explained", "updates_explained", "integer_explained", "float_steps",
            "llm_quantisers_explained", "dequantised_explained", "swiglu_explained", "payload_explained",
            "stepwise", "__init__",
        )),
        "model_questions",
        "ask_model",
        ("tests/conformance/test_explain_command.py", "tests/conformance/test_explained_outputs.py",
         "tests/training/test_stable_spam.py", *(
            f"tests/refnum/test_{name}.py" for name in (
            "philox", "profiles", "layouts", "softfloat", "payload", "narrow", "published", "swiglu", "inputs",
            "model_edges", "dispatch", "model_equals_oracle", "operations_equal_oracle", "explain", "oracle",
            "codec", "nonsense", "nvfp4", "hadamard", "tetrajet", "tetrajet_v2", "logarithmic", "oscillation",
            "estimators", "product", "tensor_core", "product_bounds", "updates", "optimisers", "integer",
            "llm_quantisers", "array_kinds", "interchange", "explain_further", "explain_products", "explain_texts",
            "captured_products", "defaults",
        ))),
    ),
    Target(
        "comparator",
        tuple(f"conformance/{name}.py" for name in (
            "verdicts/compare", "verdicts/bounds", "cases/same_bytes", "cases/draw/bits", "cases/geometry",
            "cases/levels", "cases/layouts", "verdicts/judge", "verdicts/repeats", "verdicts/tally",
            "verdicts/outside", "verdicts/refusals", "verdicts/blame", "verdicts/coverage", "verdicts/device",
            "verdicts/elsewhere", "verdicts/judge_wide", "verdicts/judge_worker", "verdicts/kinds", "verdicts/probes",
            "verdicts/reproduce", "verdicts/smoke", "verdicts/structural",
        )),
        "control_questions",
        "ask_comparator",
        ("tests/docs/test_docs_metadata.py", *(f"tests/conformance/test_{name}.py" for name in (
            "compare", "input_classes", "patterns", "grid", "run", "run_order", "storage", "shrink", "show_data",
            "device_judging", "case", "controls", "coverpoints", "corners", "corners_recast", "diagnose",
            "mismatch_page", "domains", "domains_there", "report", "report_diff", "replay", "api", "subject",
            "subject_calls", "journal", "fused_drawing", "probes", "undefined_variants", "html", "sarif", "recipes",
            "plugin", "data", "matrix_cells", "tally", "bits", "refusals", "same", "byte_order", "door_contracts",
            "door_permute", "flaky", "judged_calls", "kinds", "other_profile", "product_levels", "product_page",
            "replay_command", "replay_deadly", "report_faults", "stored_scales", "strangers", "structure_grouped",
            "suspects", "tally_verdicts", "truth_values", "asked_of_structure", "blame", "device_counts", "findings",
            "first_steps", "fuzz_confirm", "kinds_alone", "prove_enumeration", "recipes_judged", "shown_again",
            "structural_cases", "streams", "structure_further", "structure_scalars", "ways", "wide_judged",
        ))),
        (4 << 30) + 4 * FAR,  # rows of float32 that lie far apart take addresses, not memory
    ),
)  # fmt: skip
