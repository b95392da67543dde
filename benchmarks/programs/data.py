"""Data that programs read in place of data sets and weights: everything is generated, and small."""

import json
import pickle
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

_TEXT = "a red blue small large fox dog bird sees finds loves the and of in on under over runs sleeps here there now"
_WORDS = _TEXT.split()


def generate(folder: Path) -> None:
    """Fill a folder with all of it."""
    for make in (_texts, _tokens, _documents, _images, _digits, _models):
        make(folder)


def _sentences(n: int, seed: int, length: int = 8) -> list[str]:
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(_WORDS, length)) for _ in range(n)]


def _texts(folder: Path) -> None:
    """train.txt and validation.txt, a sentence a line; pairs with a label as CSV; texts as JSON lines."""
    for name, n, seed in (("train", 256, 0), ("validation", 32, 1)):
        lines = _sentences(n, seed)
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
        pairs = [f"{a},{b},{i % 2},{i}" for i, (a, b) in enumerate(zip(lines, lines[::-1], strict=True))]
        (folder / f"{name}.csv").write_text("\n".join(["sentence1,sentence2,label,idx", *pairs]) + "\n")
        (folder / f"{name}.json").write_text("".join(json.dumps({"text": line * 4}) + "\n" for line in lines))


def _tokens(folder: Path) -> None:
    """Tokens below 256: bare uint16 (.bin), as numpy's (.npy), and with the header of llm.c."""
    (folder / "tokens" / "shards").mkdir(parents=True)
    for name, seed in (("train", 0), ("val", 1)):
        drawn = np.random.default_rng(seed).integers(2, 250, 20_000).astype(np.uint16)
        drawn.tofile(folder / "tokens" / f"{name}.bin")
        np.save(folder / "tokens" / "shards" / f"{name}_0.npy", drawn)
        header = np.zeros(256, np.int32)
        header[:3] = 20240520, 1, len(drawn)
        (folder / "tokens" / f"llmc_{name}.bin").write_bytes(header.tobytes() + drawn.tobytes())
    (folder / "tokens" / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 256, "stoi": {}, "itos": {}}))


def _documents(folder: Path) -> None:
    """Texts as JSON in a folder of its own, and as Parquet with a tokenizer of bytes (the stand-in's), as nanochat has them."""
    import pyarrow as pa  # noqa: PLC0415 - some of the programs' own requirements
    import pyarrow.parquet as pq  # noqa: PLC0415
    import torch  # noqa: PLC0415

    (folder / "c4").mkdir()
    (folder / "c4" / "data.json").write_text((folder / "train.json").read_text())
    shards, tokenizer = folder / "nanochat" / "base_data_climbmix", folder / "nanochat" / "tokenizer"
    for each in (shards, tokenizer):
        each.mkdir(parents=True)
    for seed in range(2):
        pq.write_table(pa.table({"text": _sentences(256, seed, 16)}), shards / f"shard_{seed:05d}.parquet", row_group_size=64)
    (tokenizer / "tokenizer.pkl").write_bytes(b"\x80\x02ctiktoken\nEncoding\n)\x81.")  # an object of that class
    torch.save(torch.ones(50257, dtype=torch.int32), tokenizer / "token_bytes.pt")


def _images(folder: Path) -> None:
    """Two classes of pictures of 40 x 40, in folders."""
    from PIL import Image  # noqa: PLC0415 - some of the programs' own requirements

    draw = np.random.default_rng(0)
    for part, n in (("train", 32), ("val", 8)):
        for i in range(n):
            file = folder / "images" / part / f"class{i % 2}" / f"{i}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(draw.integers(0, 256, (40, 40, 3), np.uint8)).save(file)


def _digits(folder: Path) -> None:
    """MNIST's four files, with 256 and 64 random pictures."""
    raw = folder / "mnist" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    draw = np.random.default_rng(0)
    for part, n in (("train", 256), ("t10k", 64)):
        pictures, labels = draw.integers(0, 256, (n, 28, 28), np.uint8), draw.integers(0, 10, n).astype(np.uint8)
        (raw / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, n, 28, 28) + pictures.tobytes())
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, n) + labels.tobytes())


def _models(folder: Path) -> None:
    """Tiny models of Hugging Face with random weights, each with a tokenizer of words."""
    import torch  # noqa: PLC0415
    import transformers as hf  # noqa: PLC0415

    small = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    inner = {"intermediate_size": 64, "max_position_embeddings": 128}
    llama = hf.LlamaConfig(**small, **inner, num_key_value_heads=2, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    t5 = hf.T5Config(vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0)
    of: Sequence[tuple[str, Callable[..., object], object]] = (
        ("gpt2", hf.GPT2LMHeadModel, hf.GPT2Config(vocab_size=64, n_positions=128, n_embd=32, n_layer=2, n_head=4)),
        ("bert", hf.BertForSequenceClassification, hf.BertConfig(**small, **inner)),
        ("llama", hf.LlamaForCausalLM, llama),
        ("t5", hf.T5ForConditionalGeneration, t5),
    )
    for name, model, config in of:
        torch.manual_seed(0)
        model(config).save_pretrained(folder / name)  # type: ignore[attr-defined]
        _tokenizer().save_pretrained(folder / name)  # type: ignore[attr-defined]


def _tokenizer() -> object:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors  # noqa: PLC0415
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415

    special = {"pad_token": "[PAD]", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "[UNK]"}
    more = {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    vocabulary = [*special.values(), *more.values(), *dict.fromkeys(_WORDS)]
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [(word, vocabulary.index(word)) for word in ("[CLS]", "[SEP]")]
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", ends)
    return PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=64, **special, **more)
