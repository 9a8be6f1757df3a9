"""Verdicts: a kernel's answer compared with the golden one, and the probes of the calling contract."""
