"""Presets other than devices: price books, a fault log, and words of `--stack` that set several settings.

Prices are two books of one paper each, and Emu's own book, which prices every published fabric.

The word `nccl` for stacks gives NCCL's choice of algorithms, and the speed of NCCL's all_reduce on a node of 8 H100 by
nccl-tests; each number has its source. `emu repro nccl --fit` fits launch, alpha, adding and the share of NVLink's bandwidth
(the first tier). The share of NICs (the other tiers) is not fitted: a round number below the 0.98 that the headers of
InfiniBand packets of 4 KiB leave.
"""

from collections.abc import Mapping
from pathlib import Path

from emu.registry import unknown
from emu.study.cost.price_book import PriceBook, read_book
from emu.study.faults.source import FaultLog, read_log

_FOLDER = Path(__file__).with_name("prices")
DEFAULT = "emu"
BOOKS = tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def find_book(text: str) -> PriceBook:
    """Return a price book by its name, or from a file.

    Raises:
        InputError: No book has that name; or see `read_book`.
    """
    if text.endswith(".toml"):
        return read_book(Path(text), text)
    if text not in BOOKS:
        raise unknown("price book", text, BOOKS)
    return read_book(_FOLDER / f"{text}.toml", f"{text}.toml")


LOG = Path(__file__).with_name("faults") / "servers-400.csv"
SERVERS, GPUS = 400, 8  # of a server
SOURCE = "the 348-day trace of 400 servers of 8 GPUs that Shou et al. publish with InfiniteHBD (Apache-2.0)"


def production_log() -> FaultLog:
    """Return the fault log of a production cluster; see its README."""
    return read_log(LOG, SERVERS)


_NETWORK = "library=nccl,alpha=54.73ns,adding=8.278us,bandwidth=0.6581/0.95"
STACKS: Mapping[str, str] = {
    "nccl": f"launch=10.36us,{_NETWORK}",
    "nccl-ahead": _NETWORK,  # where the host asks ahead of the device, as in a training step: no launch is waited for
}
