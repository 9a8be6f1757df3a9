"""Routes of ragged tokens, and exchanges whose other rank is late or gone."""

import datetime
import os
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from layer_ranks import start

from refnum.errors import RefnumError
from refnum.training.dispatch import RankError, Ranks, make_route
from refnum.training.layer import MoELayer
from refnum.training.witness import Witness


def test_a_route_of_one_rank_is_in_expert_order():
    experts = torch.tensor([[2, 0], [0, 3], [2, 3]])
    probs = torch.tensor([[0.75, 0.25], [0.5, 0.5], [0.625, 0.375]])
    route, where, prob = make_route(Ranks(), experts, probs, 4)
    assert (route.send, route.receive, route.tokens.tolist()) == ([3], [3], [0, 1, 2])
    assert route.row_map.tolist() == [0, 1, 0, 2, 1, 2] and route.slots.tolist() == [1, 0, 0, 0, 1, 1]
    assert (route.splits, route.rows) == ([2, 0, 2, 2], [128, 0, 128, 128])
    assert route.places.tolist() == [0, 1, 128, 129, 256, 257]
    assert prob[route.places].tolist() == [0.25, 0.5, 0.75, 0.625, 0.5, 0.375] and int((prob != 0).sum()) == 6
    assert torch.equal(where, experts)


def join(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    wait = datetime.timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2, timeout=wait)


def late(rank: int, folder: str, gone: bool) -> None:
    """Rank 1 does not come to the exchange: it sleeps until rank 0 has told, or it ends when both have joined."""
    join(rank, folder)
    joined, told = Path(folder, "joined"), Path(folder, "told")
    if rank == 1:
        while not joined.exists():  # rank 0 cannot join a group whose other rank has ended already
            time.sleep(0.01)
        end = time.monotonic() + (0 if gone else 5)
        while time.monotonic() < end and not told.exists():
            time.sleep(0.01)
        return
    joined.touch()
    begin = time.monotonic()
    try:
        Ranks(seconds=1).counts(torch.ones(2, dtype=torch.int64))
    except RankError as error:
        told.write_text(f"{time.monotonic() - begin:.1f} {error}")
        os._exit(0)  # gloo's threads, which still wait for the other rank, may abort a process that ends in order


@pytest.mark.parametrize("gone", [False, True], ids=["late", "gone"])
def test_a_rank_that_does_not_come_is_told_in_time(gone, tmp_path):
    start(late, (str(tmp_path), gone))
    seconds, _, words = (tmp_path / "told").read_text().partition(" ")
    assert float(seconds) < 4
    assert words.startswith("rank 0 of 2 waited up to 1 s") and "start all ranks again" in words


def witnessed(rank: int, folder: str) -> None:
    """Train with a witness on two ranks, of which one has no token, and refuse what does not fit."""
    join(rank, folder)
    witness = Witness(Path(folder) / "witness", rate=1.0, every=1, rows=None, share=1.0, seed=rank)
    layer = MoELayer(128, 128, 4, 2, "mxfp4", witness=witness, seed=1, seconds=60)
    for step in range(2):
        witness.step = step
        x = torch.randn(7 * (1 - rank) * (step + 1), 128).to(torch.bfloat16).requires_grad_()
        layer(x).float().sum().backward()
    try:
        MoELayer(128, 128, 3, 1, "mxfp4", seed=1)
        words = ""
    except RefnumError as error:
        words = str(error)
    Path(folder, f"told{rank}").write_text(f"{len(witness.mismatches)} {witness.judged['layer steps']} {words}")
    dist.destroy_process_group()


def test_a_witness_of_two_ranks_follows_steps_of_both(tmp_path):
    start(witnessed, (str(tmp_path),))
    for rank in range(2):
        mismatches, steps, words = (tmp_path / f"told{rank}").read_text().split(" ", 2)
        assert (mismatches, steps) == ("0", "2")
        assert words == "3 experts on 2 ranks; allowed are ranks that divide the experts"


def test_a_group_needs_torch_distributed():
    with pytest.raises(RefnumError, match="not initialised"):
        Ranks(group=object())
