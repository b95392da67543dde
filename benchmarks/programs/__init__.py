"""Programs of public repositories on emulated ranks and beside torchrun with gloo; none of them is kept here."""
