"""Certificates: what was proved, of what, by which code, with a digest of every chunk. Files of `vectors/proofs`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from refnum.errors import FileError, RefnumError

from ...reports.files import check, read_json, write_json
from ...vectors import vectors_folder
from .catalogue import CATALOGUE, Proof, domain_record
from .digest import RULE, root

KIND, VERSION = "proof", 1
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
    check(document, KIND, "the certificate")
    return document


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
    known = domain_record(CATALOGUE[document["proof"]])
    for name, value in known.items():
        if domain[name] != value:
            raise CertificateError(f"{path}: its domain has {name} {domain[name]!r}; the catalogue has {value!r}.")
    if document["digest"]["root"] != root(chunks):
        raise CertificateError(f"{path}: the digests of its chunks do not give its root; it was changed or cut.")
    if len(chunks) != domain["chunks"]:
        raise CertificateError(f"{path}: it has {len(chunks)} chunk digests for {domain['chunks']} chunks.")
    if result["members"] != domain["size"]:
        raise CertificateError(f"{path}: {result['members']} of {domain['size']} members were compared: no proof.")
    return document


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
