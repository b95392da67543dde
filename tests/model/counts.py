"""Counts of a model: the parameters of a part, and the FLOPs of one rank."""

from emu.model.operator import Cut, Tokens


def part_parameters(model, part, cut=None):
    """The parameters of the embedding, the head, or one layer of a kind; with `cut`, those of one rank."""
    return sum((o.on(cut) if cut else o).parameters for o in model.part(part, Tokens(1)))


def sequence_flops(model, seq, tp=1):
    """The FLOPs of products and attention, forward and backward, of one rank for one sequence."""
    passes = [(n, o.eager) for n, o in model.operators(Tokens(seq), Cut(tp))]
    return sum(n * p.forward.flops for n, p in passes), sum(n * p.backward.flops for n, p in passes)
