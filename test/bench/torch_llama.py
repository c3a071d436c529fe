"""A plain PyTorch Llama with the shape of a config.json: what the benchmarks compare with."""

import json
import os

import torch
import torch.nn.functional as F
from torch import nn


def rotary_tables(length, size, theta):
    frequencies = theta ** -(torch.arange(0, size, 2).float() / size)
    angles = torch.outer(torch.arange(length).float(), frequencies)  # [T, d/2]
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    """x: [B, h, T, d]; cos, sin: [T, d/2]."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        size, inner = config["hidden_size"], config["intermediate_size"]
        self.heads, self.kv_heads, self.head_size = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
        self.norm1 = nn.RMSNorm(size, eps=config["rms_norm_eps"])
        self.norm2 = nn.RMSNorm(size, eps=config["rms_norm_eps"])
        self.qkv = nn.Linear(size, (self.heads + 2 * self.kv_heads) * self.head_size, bias=False)
        self.output = nn.Linear(self.heads * self.head_size, size, bias=False)
        self.gate = nn.Linear(size, inner, bias=False)
        self.up = nn.Linear(size, inner, bias=False)
        self.down = nn.Linear(inner, size, bias=False)

    def forward(self, x, cos, sin, cache=None, start=0):
        """x: [B, T, H]. cache: keys and values [B, kv, C, d], written in place at `start`."""
        batch, time, _ = x.shape
        joined = self.qkv(self.norm1(x)).view(batch, time, -1, self.head_size).transpose(1, 2)
        q, k, v = joined.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if cache is not None:
            keys, values = cache
            keys[:, :, start : start + time] = k
            values[:, :, start : start + time] = v
            k, v = keys[:, :, : start + time], values[:, :, : start + time]
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=time > 1, enable_gqa=True)
        x = x + self.output(mixed.transpose(1, 2).reshape(batch, time, -1))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embedding = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.layers = nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))
        self.norm = nn.RMSNorm(config["hidden_size"], eps=config["rms_norm_eps"])
        cos, sin = rotary_tables(config["max_position_embeddings"], config["head_dim"], config["rope_theta"])
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=config["initializer_range"])

    def hidden(self, tokens, caches=None, start=0):
        """tokens: [B, T] -> [B, T, H], normed."""
        x = self.embedding(tokens)
        cos, sin = self.cos[start : start + tokens.shape[1]], self.sin[start : start + tokens.shape[1]]
        for index, layer in enumerate(self.layers):
            x = layer(x, cos, sin, None if caches is None else caches[index], start)
        return self.norm(x)

    def logits(self, hidden):
        return F.linear(hidden, self.embedding.weight)


def build(directory, threads):
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    return config, Llama(config)
