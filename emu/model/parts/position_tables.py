"""Modules with a table of positions: a module's tokens have the positions 0, 1, ... of a sequence, unless others are set."""

from torch import Tensor, nn


class PositionedModule(nn.Module):
    """A module with tables that have a row for each position; it reads as many first rows as it sees tokens of a sequence."""

    tables: tuple[str, ...] = ()  # the names of the buffers that are tables

    def place(self, positions: Tensor) -> None:
        """Keep only the rows of these positions [T], in their order, for the tokens that the module sees from now on."""
        for name in self.tables:
            self.register_buffer(name, self.get_buffer(name)[positions], persistent=False)
