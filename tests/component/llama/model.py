# SPDX-License-Identifier: Apache-2.0
"""Writes a small model of the architecture of Llama with random weights, as llama.cpp loads it (GGUF, version 3).

    model.py FILE
"""
import random
import struct
import sys

LAYERS, WIDTH, HEADS, KV_HEADS, INNER = 2, 128, 4, 2, 256
WORDS = [f"\u2581{n}" for n in range(256)]
TOKENS = ["<unk>", "<s>", "</s>", *WORDS]
NORMAL, UNKNOWN, CONTROL = 1, 2, 3  # kinds of tokens
KINDS = [UNKNOWN, CONTROL, CONTROL, *[NORMAL] * len(WORDS)]
U32, I32, F32, STRING, ARRAY = 4, 5, 6, 8, 9  # kinds of values
ALIGNED = 32


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def value(kind, value):
    if kind == STRING:
        return text(value)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f"}[kind], value)


def single(name, kind, content):
    return text(name) + struct.pack("<I", kind) + value(kind, content)


def array(name, kind, contents):
    return text(name) + struct.pack("<IIQ", ARRAY, kind, len(contents)) + b"".join(value(kind, c) for c in contents)


def properties():
    numbers = {"context_length": 4096, "embedding_length": WIDTH, "block_count": LAYERS, "feed_forward_length": INNER,
               "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS, "rope.dimension_count": WIDTH // HEADS,
               "vocab_size": len(TOKENS)}
    return [single("general.architecture", STRING, "llama"),
            *[single(f"llama.{name}", U32, number) for name, number in numbers.items()],
            single("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
            single("tokenizer.ggml.model", STRING, "llama"), array("tokenizer.ggml.tokens", STRING, TOKENS),
            array("tokenizer.ggml.scores", F32, [0.0] * len(TOKENS)), array("tokenizer.ggml.token_type", I32, KINDS),
            single("tokenizer.ggml.bos_token_id", U32, 1), single("tokenizer.ggml.eos_token_id", U32, 2)]


def tensors():
    """Name and size of each; ggml has the fastest dimension first."""
    yield "token_embd", (WIDTH, len(TOKENS))
    yield "output", (WIDTH, len(TOKENS))
    yield "output_norm", (WIDTH,)
    for layer in range(LAYERS):
        narrow = WIDTH // HEADS * KV_HEADS
        for name, size in (("attn_norm", (WIDTH,)), ("attn_q", (WIDTH, WIDTH)), ("attn_k", (WIDTH, narrow)),
                           ("attn_v", (WIDTH, narrow)), ("attn_output", (WIDTH, WIDTH)), ("ffn_norm", (WIDTH,)),
                           ("ffn_gate", (WIDTH, INNER)), ("ffn_up", (WIDTH, INNER)), ("ffn_down", (INNER, WIDTH))):
            yield f"blk.{layer}.{name}", size


def padded(data):
    return data + bytes(-len(data) % ALIGNED)


def write(path):
    dice, heads, weights = random.Random(3), [], b""
    for name, size in tensors():
        count = size[0] * (size[1] if len(size) > 1 else 1)
        values = [1.0] * count if len(size) == 1 else [dice.gauss(0, 2 / size[0] ** 0.5) for _ in range(count)]
        heads.append(text(name + ".weight") + struct.pack(f"<I{len(size)}QIQ", len(size), *size, 0, len(weights)))
        weights += padded(struct.pack(f"<{count}f", *values))
    told = properties()
    with open(path, "wb") as file:
        file.write(padded(b"GGUF" + struct.pack("<IQQ", 3, len(heads), len(told)) + b"".join(told + heads)) + weights)


if __name__ == "__main__":
    write(sys.argv[1])
