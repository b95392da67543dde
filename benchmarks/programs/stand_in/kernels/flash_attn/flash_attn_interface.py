"""See flash_attn."""

from flash_attn import refused

flash_attn_func = refused("flash_attn_func")
flash_attn_varlen_func = refused("flash_attn_varlen_func")
flash_attn_with_kvcache = refused("flash_attn_with_kvcache")
_flash_attn_varlen_forward = refused("_flash_attn_varlen_forward")
_flash_attn_varlen_backward = refused("_flash_attn_varlen_backward")
_flash_attn_forward = refused("_flash_attn_forward")
_flash_attn_backward = refused("_flash_attn_backward")
