"""See flash_attn."""

from flash_attn import refused

layer_norm_fn = refused("layer_norm_fn")
rms_norm_fn = refused("rms_norm_fn")
