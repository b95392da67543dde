"""See flash_attn."""

from flash_attn import refused

apply_rotary_emb = refused("apply_rotary_emb")
RotaryEmbedding = refused("RotaryEmbedding")
