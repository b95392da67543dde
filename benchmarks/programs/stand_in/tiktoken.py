"""In place of tiktoken's GPT-2 encoding, which is downloaded: a token a byte."""


class Encoding:
    """Bytes as tokens."""

    n_vocab, eot_token, max_token_value = 50257, 50256, 50256
    special_tokens_set = frozenset({"<|endoftext|>"})

    def encode(self, text, **_):
        """Return the tokens of a text."""
        return list(text.encode())

    encode_ordinary = encode

    def encode_ordinary_batch(self, texts, **_):
        """Return the tokens of each text."""
        return [self.encode(text) for text in texts]

    def encode_single_token(self, word):
        """Return the one token of a special word."""
        return self.eot_token

    def decode(self, tokens):
        """Return the text of tokens."""
        return self.decode_bytes(tokens).decode(errors="replace")

    def decode_bytes(self, tokens):
        """Return the bytes of tokens."""
        return bytes(token for token in tokens if token < 256)


def get_encoding(name):
    """Return the encoding, whatever its name."""
    return Encoding()
