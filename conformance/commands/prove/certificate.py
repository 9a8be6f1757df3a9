"""Certificates: what was proved, of what, by which code, with a digest of every chunk. Files of `vectors/proofs`."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from refnum.errors import FileError, RefnumError

from ...reports.files import check, read_json, write_json
from ...vectors import vectors_folder
from .catalogue import CATALOGUE, Proof, domain_record
from .digest import RULE, root

KIND, VERSION = "proof", 2
SCHEMA = f"refnum.{KIND}/{VERSION}"


class CertificateError(RefnumError):
    """A certificate contradicts itself, the catalogue, or what the model gives for one of its chunks."""


def proofs_folder() -> Path:
    """Return the folder of the published certificates."""
    return vectors_folder() / "proofs"


def file_name(proof: str, subject: str) -> str:
    """Return the name of a certificate's file."""
    return f"{proof}.{subject}.json"


def certificate(
    proof: Proof, chunks: list[str], result: dict[str, Any], records: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Return a certificate as JSON values; records: `model`, `subject`, `machine` and `run`."""
    document = {
        "schema": SCHEMA,
        "proof": proof.name,
        "statement": proof.statement,
        "clause": proof.clause,
        "operations": list(proof.operations),
        "domain": domain_record(proof),
        "result": result,
        **records,
        "digest": {"rule": RULE, "root": root(chunks), "chunks": chunks},
    }
    document = sealed(document)
    check(document, KIND, "the certificate")
    return document


def sealed(document: dict[str, Any]) -> dict[str, Any]:
    """Return a certificate under this version's schema, with the digest of all that it says (N18.5)."""
    document = {**document, "schema": SCHEMA, "digest": dict(document["digest"])}
    document["digest"]["certificate"] = seal(document)
    return document


def seal(document: dict[str, Any]) -> str:
    """Return SHA-256 over everything in a certificate but the digests of the chunks, which its root stands for (N18.5).

    The bytes are JSON with sorted keys and no spaces, in ASCII.
    """
    said = {**document, "digest": {name: document["digest"][name] for name in ("rule", "root")}}
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode("ascii")).hexdigest()


def write_certificate(path: Path, document: dict[str, Any]) -> None:
    """Write a certificate, whole or not at all."""
    check(document, KIND, str(path))
    write_json(path, document)


def load_certificate(path: Path) -> dict[str, Any]:
    """Return a certificate that agrees with its schema, with itself and with the catalogue.

    Raises FileError for an unreadable file, CertificateError for a contradiction.
    """
    document = read_json(path, KIND, VERSION)
    chunks, result, domain = document["digest"]["chunks"], document["result"], document["domain"]
    if document["proof"] not in CATALOGUE:
        raise CertificateError(f"{path}: the catalogue has no proof named {document['proof']!r}.")
    _check_catalogue(path, document, CATALOGUE[document["proof"]])
    if document["digest"]["root"] != root(chunks):
        raise CertificateError(f"{path}: the digests of its chunks do not give its root; it was changed or cut.")
    if document["digest"]["certificate"] != seal(document):
        raise CertificateError(f"{path}: what it says does not give its digest; it was changed after it was written.")
    if len(chunks) != domain["chunks"]:
        raise CertificateError(f"{path}: it has {len(chunks)} chunk digests for {domain['chunks']} chunks.")
    if result["members"] != domain["size"]:
        raise CertificateError(f"{path}: {result['members']} of {domain['size']} members were compared: no proof.")
    return document


def _check_catalogue(path: Path, document: dict[str, Any], proof: Proof) -> None:
    """Raise CertificateError where a certificate says something else of its proof than the catalogue."""
    for name, value in domain_record(proof).items():
        if document["domain"][name] != value:
            raise CertificateError(
                f"{path}: its domain has {name} {document['domain'][name]!r}; the catalogue has {value!r}."
            )
    stated = {"statement": proof.statement, "clause": proof.clause, "operations": list(proof.operations)}
    for name, value in stated.items():
        if document[name] != value:
            raise CertificateError(f"{path}: its {name} is {document[name]!r}; the catalogue has {value!r}.")


def published(folder: Path | None = None) -> dict[tuple[str, str], Path]:
    """Return (proof, subject) -> file of the certificates in a folder."""
    folder = proofs_folder() if folder is None else folder
    if not folder.is_dir():
        raise FileError(f"No such folder {folder}.")
    found = {}
    for path in sorted(folder.glob("*.json")):
        proof, _, subject = path.stem.rpartition(".")
        found[proof, subject] = path
    return found
