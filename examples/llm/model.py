"""SmolLM2 (a Llama) in torch, from a GGUF file and back into one.

The weights stay in the order of the file, so what was trained is written as it is.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import torch
from torch import Tensor, nn
from torch.nn import functional

KEEP = gguf.GGMLQuantizationType.F32  # of vectors; matrices are written with 16 bits
MATRIX = gguf.GGMLQuantizationType.F16


class Model(nn.Module):
    """Log-probabilities of tokens. `path`: a GGUF file of the architecture "llama"."""

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self.path = str(path)
        reader = gguf.GGUFReader(self.path)

        def number(name: str) -> float:
            return float(reader.fields[f"llama.{name}"].contents())

        self.layers = int(number("block_count"))
        self.heads = int(number("attention.head_count"))
        self.kv_heads = int(number("attention.head_count_kv"))
        self.eps = number("attention.layer_norm_rms_epsilon")
        self.rope_base = number("rope.freq_base")
        self.weights = nn.ParameterDict()
        for tensor in reader.tensors:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            name = tensor.name.replace(".", "/")  # as a ParameterDict wants it
            self.weights[name] = nn.Parameter(torch.from_numpy(values.copy()))

    def forward(self, tokens: Tensor, start: int = 0) -> Tensor:
        """Of the tokens from `start` on (at least 1), each given those before it."""
        x = functional.embedding(tokens, self._weight("token_embd"))
        turn = self._rotation(tokens.shape[1])
        for layer in range(self.layers):
            x = x + self._attention(
                layer, self._norm(x, f"blk.{layer}.attn_norm"), turn
            )
            x = x + self._mlp(layer, self._norm(x, f"blk.{layer}.ffn_norm"))
        x = self._norm(x[:, start - 1 : -1], "output_norm")
        logits = functional.linear(x, self._weight("token_embd"))  # it is tied
        chosen = tokens[:, start:, None]
        return functional.log_softmax(logits, -1).gather(-1, chosen)[..., 0]

    def save(self, path: str | Path) -> None:
        """A GGUF file like the one that it came from, with these weights."""
        reader = gguf.GGUFReader(self.path)
        writer = gguf.GGUFWriter(str(path), "llama")
        for name, field in reader.fields.items():
            # what the writer adds itself, and how the old file was quantized
            if name.startswith("GGUF.") or name == "general.architecture":
                continue
            if name.startswith("general.") and "quantiz" in name:
                continue
            kind = field.types[0]
            of = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), kind, sub_type=of)
        for name, weight in self.weights.items():
            values = weight.detach().numpy()
            kind = MATRIX if values.ndim == 2 else KEEP
            data = gguf.quants.quantize(values, kind)
            writer.add_tensor(name.replace("/", "."), data, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    def _weight(self, name: str) -> Tensor:
        weight: Tensor = self.weights[f"{name}.weight".replace(".", "/")]
        return weight

    def _norm(self, x: Tensor, name: str) -> Tensor:
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return x * scale * self._weight(name)

    def _rotation(self, length: int) -> Tensor:
        size = self._weight("blk.0.attn_q").shape[0] // self.heads
        speeds = self.rope_base ** (-torch.arange(0, size, 2) / size)
        angles = torch.arange(length)[:, None] * speeds
        return torch.polar(torch.ones_like(angles), angles)

    def _attention(self, layer: int, x: Tensor, turn: Tensor) -> Tensor:
        batch, length, _ = x.shape

        def split(name: str, heads: int) -> Tensor:
            y = functional.linear(x, self._weight(f"blk.{layer}.{name}"))
            return y.view(batch, length, heads, -1).transpose(1, 2)

        def rotated(y: Tensor) -> Tensor:
            pairs = torch.view_as_complex(y.reshape(*y.shape[:-1], -1, 2))
            return torch.view_as_real(pairs * turn).flatten(-2)

        q = rotated(split("attn_q", self.heads))
        k = rotated(split("attn_k", self.kv_heads))
        v = split("attn_v", self.kv_heads)
        repeat = self.heads // self.kv_heads
        k, v = (y.repeat_interleave(repeat, dim=1) for y in (k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).reshape(batch, length, -1)
        return functional.linear(y, self._weight(f"blk.{layer}.attn_output"))

    def _mlp(self, layer: int, x: Tensor) -> Tensor:
        gate = functional.linear(x, self._weight(f"blk.{layer}.ffn_gate"))
        up = functional.linear(x, self._weight(f"blk.{layer}.ffn_up"))
        return functional.linear(
            functional.silu(gate) * up, self._weight(f"blk.{layer}.ffn_down")
        )
