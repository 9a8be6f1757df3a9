"""The certificates in vectors/proofs: none contradicts itself, and chunks of each are what the model gives now."""

import pytest

from refnum.conformance.commands.prove.catalogue import CATALOGUE
from refnum.conformance.commands.prove.certificate import file_name, load_certificate, published
from refnum.conformance.commands.prove.verify import draw_chunks, verify

PUBLISHED = published()
SIZE = 1 << 25
"""Members up to which every chunk of a certificate is made again here; of larger ones one, and that is slow."""


def test_there_are_certificates_of_what_only_a_device_can_run():
    assert {proof for proof, _ in PUBLISHED} >= {proof.name for proof in CATALOGUE.values() if proof.minutes}


@pytest.mark.parametrize(("proof", "subject"), PUBLISHED)
def test_a_certificate_agrees_with_itself_and_the_catalogue(proof, subject):
    path = PUBLISHED[proof, subject]
    document = load_certificate(path)
    assert path.name == file_name(document["proof"], document["subject"]["name"])
    assert document["subject"]["digest"] and document["run"]["rate"] > 0
    if document["subject"]["kind"] == "gpu":
        assert all(len(code["machine_code"]) == 64 for code in document["subject"]["code"].values())
        assert document["machine"]["device"] and document["machine"]["driver"]


@pytest.mark.parametrize(
    ("proof", "subject"),
    [
        pytest.param(*key, marks=[pytest.mark.slow] if CATALOGUE[key[0]].size > SIZE else [])
        for key in PUBLISHED
        if key[0] in CATALOGUE
    ],
)
def test_the_model_gives_the_digests_still(proof, subject):
    document = load_certificate(PUBLISHED[proof, subject])
    few = CATALOGUE[proof].size <= SIZE
    chunks = draw_chunks(document, 2 if few else 1, seed=int(document["digest"]["root"][-8:], 16))
    assert verify(document, chunks) == len(chunks)
