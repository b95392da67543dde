"""Real text to train on: the bytes of a file, cut into sequences that every plan reads alike."""

from pathlib import Path
from pydoc_data.topics import topics

import numpy as np

from emu.arrays import I64
from emu.errors import InputError, must_be
from emu.model.plan.plan import Plan


def read_text(path: Path | None = None) -> bytes:
    """Return the bytes of a file; without a path, the English text of the standard library's help topics.

    Raises:
        InputError: The file cannot be read.
    """
    if path is None:
        return "".join(topics.values()).encode()
    try:
        return path.read_bytes()
    except OSError as error:
        raise must_be("train", "--data", "a file that can be read", str(path), error.strerror or "") from None


def check_text(text: bytes, plan: Plan, vocab: int) -> None:
    """Refuse a text that does not fill one sequence, or a vocabulary that bytes do not fit.

    Raises:
        InputError: the message says how many bytes are needed.
    """
    if len(text) <= plan.seq:
        raise must_be("train", "--data", f"at least {plan.seq + 1} bytes, one sequence", len(text))
    if vocab < 256:
        raise InputError(f"train: the data are bytes, and the model's vocabulary has {vocab} tokens of the 256 needed")


def batch(text: bytes, plan: Plan, step: int) -> I64:
    """Return [global_batch, seq + 1] the tokens of a step, one sequence after another; at the end the text begins again."""
    tokens = np.frombuffer(text, np.uint8)
    first = (step * plan.global_batch + np.arange(plan.global_batch)) * plan.seq % (len(tokens) - plan.seq)
    return np.asarray(tokens[first[:, None] + np.arange(plan.seq + 1)], np.int64)
