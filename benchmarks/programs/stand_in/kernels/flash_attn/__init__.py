"""In place of flash-attn, whose kernels are CUDA: its names can be imported, and none of its functions can be called."""


def refused(name):
    """Return a function that refuses to be called."""

    def refuse(*_, **__):
        raise NotImplementedError(f"flash_attn.{name} is a CUDA kernel")

    return refuse


__version__ = "0.0.0"
flash_attn_func = refused("flash_attn_func")
flash_attn_varlen_func = refused("flash_attn_varlen_func")
