"""See flash_attn."""
