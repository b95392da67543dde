"""Which positions of a sequence a module's tokens have: all from the first on, unless it is told others."""

from torch import Tensor, nn


class Positioned(nn.Module):
    """A module with tables of a row for each position; it reads their first rows, as many as it sees tokens of a sequence."""

    tables: tuple[str, ...] = ()  # the names of those buffers

    def place(self, positions: Tensor) -> None:
        """Keep only the rows of these positions [T], in their order: they are those of the tokens that it sees from now on."""
        for name in self.tables:
            self.register_buffer(name, self.get_buffer(name)[positions], persistent=False)
