"""SARIF: the shape that code scanning asks for, its limits, and fingerprints that stay."""

import json
from datetime import datetime

import jsonschema
import pytest
from report_documents import document as make_document
from report_documents import many

from refnum.conformance.reports.sarif import MOST_BYTES, MOST_PAGES, MOST_RESULTS, sarif
from refnum.conformance.subjects.loading.discover import from_file
from refnum.conformance.subjects.source_lines import sources
from refnum.conformance.subjects.subject import Subject

TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}}
ESSENTIALS = {
    # The parts of the schema of SARIF 2.1.0 (OASIS) that this writer uses, names and types as there, and what code
    # scanning asks for on top: a location, a rule that exists, a fingerprint.
    "type": "object",
    "required": ["$schema", "version", "runs"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"enum": ["2.1.0"]},
        "runs": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["tool", "results"],
                "additionalProperties": False,
                "properties": {
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name", "rules"],
                                "properties": {
                                    "name": {"type": "string"},
                                    "semanticVersion": {"type": "string", "pattern": "^[0-9]+[.][0-9]+[.][0-9]+"},
                                    "rules": {
                                        "type": "array",
                                        "uniqueItems": True,
                                        "maxItems": 25_000,
                                        "items": {
                                            "type": "object",
                                            "required": ["id", "shortDescription"],
                                            "properties": {"id": {"type": "string"}, "shortDescription": TEXT},
                                        },
                                    },
                                },
                            }
                        },
                    },
                    "automationDetails": {"type": "object", "properties": {"id": {"type": "string"}}},
                    "invocations": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["executionSuccessful"],
                            "properties": {
                                "executionSuccessful": {"type": "boolean"},
                                "exitCode": {"type": "integer"},
                                "startTimeUtc": {"type": "string"},
                                "toolExecutionNotifications": {
                                    "type": "array",
                                    "items": {
                                        "type": "object",
                                        "required": ["message"],
                                        "properties": {
                                            "message": TEXT,
                                            "level": {"enum": ["none", "note", "warning", "error"]},
                                        },
                                    },
                                },
                            },
                        },
                    },
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "properties": {"type": "object"},
                    "results": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "additionalProperties": False,
                            "required": ["ruleId", "ruleIndex", "message", "locations", "partialFingerprints"],
                            "properties": {
                                "ruleId": {"type": "string"},
                                "ruleIndex": {"type": "integer", "minimum": 0},
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "message": TEXT,
                                "locations": {
                                    "type": "array",
                                    "minItems": 1,
                                    "maxItems": 1000,
                                    "items": {
                                        "type": "object",
                                        "required": ["physicalLocation"],
                                        "properties": {
                                            "physicalLocation": {
                                                "type": "object",
                                                "required": ["artifactLocation"],
                                                "additionalProperties": False,
                                                "properties": {
                                                    "artifactLocation": {
                                                        "type": "object",
                                                        "required": ["uri"],
                                                        "properties": {"uri": {"type": "string", "minLength": 1}},
                                                    },
                                                    "region": {
                                                        "type": "object",
                                                        "properties": {"startLine": {"type": "integer", "minimum": 1}},
                                                    },
                                                },
                                            },
                                            "logicalLocations": {"type": "array"},
                                        },
                                    },
                                },
                                "partialFingerprints": {
                                    "type": "object",
                                    "minProperties": 1,
                                    "additionalProperties": {"type": "string"},
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}


def run_of(document, **limits):
    text = sarif(document, **limits)
    log = json.loads(text)
    jsonschema.validate(log, ESSENTIALS)
    run = log["runs"][0]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert all(rules[result["ruleIndex"]] == result["ruleId"] for result in run["results"])
    datetime.fromisoformat(run["invocations"][0]["startTimeUtc"])
    return run, len(text.encode())


def notes(run):
    return [note["message"]["text"] for note in run["invocations"][0]["toolExecutionNotifications"]]


def test_every_failure_is_a_result_and_what_was_not_verified_is_said():
    run, _ = run_of(make_document())
    assert [result["ruleId"] for result in run["results"]].count("E2M1_TIES_UP") == 3
    assert [result["ruleId"] for result in run["results"]].count("RAISED") == 3
    assert any("needs a <GPU>" in note for note in notes(run))
    first = run["results"][0]["message"]["text"]
    assert first.startswith("wrong differs on quantize_mxfp4[HOPPER, input=") and "is right for x = " in first
    assert "MISMATCH" in first and "-> even (N2)" in first


def test_a_pass_has_no_results():
    document = make_document()
    document["results"] = [row for row in document["results"] if row["outcome"] == "pass"]
    run, _ = run_of(document)
    assert run["results"] == [] and run["tool"]["driver"]["rules"] == []


def test_the_fingerprint_stays_with_the_mistake_and_not_with_the_case():
    one, other = make_document(), make_document()
    for row in other["results"]:
        for record in row["failures"]:
            record["page"] = record["page"] and {**record["page"], "place": "row 9 block 9 lane 9"}
            record["id"] = "0" * 16

    def prints(document):
        return [result["partialFingerprints"]["refnumMismatch/v2"] for result in run_of(document)[0]["results"]]

    assert prints(one) == prints(other) and len(set(prints(one))) == len(prints(one))
    for row in other["results"]:
        for record in row["failures"]:
            record["bug_classes"] = []
    assert len(set(prints(one)) & set(prints(other))) == 3  # those of the faults, which are no bug classes


def test_ten_thousand_mismatches_are_ten_thousand_results_within_the_limits():
    run, size = run_of(many(10_000))
    assert len(run["results"]) == 10_000 <= MOST_RESULTS and size <= MOST_BYTES
    assert not any("do not fit" in note for note in notes(run))
    assert len({result["partialFingerprints"]["refnumMismatch/v2"] for result in run["results"]}) == 10_000
    assert sum("MISMATCH" in result["message"]["text"] for result in run["results"]) == MOST_PAGES


@pytest.mark.parametrize(("limit", "size"), [(7, MOST_BYTES), (MOST_RESULTS, 60_000)])
def test_both_limits_are_kept(limit, size):
    run, got = run_of(many(100), results=limit, size=size)
    assert len(run["results"]) <= limit and got <= size
    assert notes(run)[0].startswith(f"{100 - len(run['results'])} more results")


def test_a_result_points_at_the_line_of_the_function(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "import refnum\n\n\ndef my_quantizer(x, profile):\n    return refnum.quantize_mxfp4(x, profile)\n\n\n"
    (tmp_path / "mine.py").write_text(text + "my_quantizer.operation = 'quantize_mxfp4'\n")
    subject = from_file("mine.py:my_quantizer")[0]
    assert sources(subject) == {"quantize_mxfp4": {"file": "mine.py", "line": 4}}
    hidden = Subject("apart", {"quantize_mxfp4": map}, origin="mine.py:my_quantizer")  # its code is not to be seen
    assert sources(hidden) == {"quantize_mxfp4": {"file": "mine.py", "line": 4}}
    assert sources(Subject("nowhere", {"quantize_mxfp4": map})) == {}
    document = make_document()
    document["header"]["subjects"][1]["source"] = sources(subject)
    place = run_of(document)[0]["results"][0]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "mine.py"}, "region": {"startLine": 4}}


def test_a_library_may_name_its_source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    library = Subject("mine", {"quantize_mxfp4": map, "pack_payload": map, "decode_e2m1": map}, origin="lib/mine.toml")
    (tmp_path / "lib").mkdir()
    own = '[operations.quantize_mxfp4]\nsource = "../csrc/mx.cu:42"\n[operations.decode_e2m1]\nsource = "cast.cu"\n'
    (tmp_path / "lib/mine.toml").write_text('source = "../csrc/all.cu"\n' + own)
    assert sources(library) == {
        "quantize_mxfp4": {"file": "csrc/mx.cu", "line": 42},
        "pack_payload": {"file": "csrc/all.cu", "line": 1},
        "decode_e2m1": {"file": "lib/cast.cu", "line": 1},
    }
    (tmp_path / "lib/mine.toml").write_text("[operations.pack_payload]\n")
    assert sources(library)["pack_payload"] == {"file": "lib/mine.toml", "line": 1}
    (tmp_path / "lib/mine.toml").write_text("no toml")
    assert sources(library)["pack_payload"] == {"file": "lib/mine.toml", "line": 1}
