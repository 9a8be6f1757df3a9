"""Proofs by exhaustion (N18): domains as data, chunked digests, certificates, resume and re-verification."""
