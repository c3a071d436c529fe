"""
Loss after one AdamW step on all parameters of a Hugging Face model, with and without the gradient of the pad token's input embedding.

transformers creates the embedding with `padding_idx`, for which PyTorch drops this gradient; the gradient of a tied output head stays.

    python test/real/padding_gradient.py <directory>    # torch 2.13.0, transformers 5.23.0
"""

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

LEARNING_RATE = 1e-4
CONVERSATION = [
    {"role": "user", "content": "What is the capital of France?"},
    {"role": "assistant", "content": "The capital of France is Paris."},
    {"role": "user", "content": "And of Italy?"},
    {"role": "assistant", "content": "The capital of Italy is Rome."},
]


def second_loss(directory: str, keeps_gradient: bool) -> float:
    tokenizer = AutoTokenizer.from_pretrained(directory)
    ids = tokenizer.apply_chat_template(CONVERSATION, return_tensors="pt", return_dict=True)["input_ids"]
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    embedding = model.get_input_embeddings()
    print(f"pad token {embedding.padding_idx}, {(ids == embedding.padding_idx).sum().item()} of {ids.numel()} tokens")
    if keeps_gradient:
        embedding.padding_idx = None
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0)
    model(ids, labels=ids).loss.backward()
    optimizer.step()
    with torch.no_grad():
        return model(ids, labels=ids).loss.item()


dropped, kept = (second_loss(sys.argv[1], keeps) for keeps in (False, True))
print(f"second loss {dropped:.6f} without the gradient, {kept:.6f} with it, difference {abs(dropped - kept):.1e}")
