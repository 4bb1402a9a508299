#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""transformers: a small decoder with random weights writes text, greedily and by sampling."""

import torch

from torch_work import Ballast, settle
from work import over_and_over, skip

try:
    from transformers import LlamaConfig, LlamaForCausalLM
except ImportError as error:
    skip(error)


def main():
    settle()
    config = LlamaConfig(vocab_size=4096, hidden_size=512, intermediate_size=1024, num_hidden_layers=6,
                         num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=512)
    model = LlamaForCausalLM(config).cuda().eval()
    ballast = Ballast()
    prompt = torch.arange(1, 17).repeat(4, 1).cuda()

    def work():
        greedy = model.generate(prompt, max_new_tokens=64, do_sample=False, pad_token_id=0)
        torch.manual_seed(5)
        sampled = model.generate(prompt, max_new_tokens=64, do_sample=True, top_k=40, pad_token_id=0)
        return int(greedy.sum()), int(sampled.sum()), greedy[0, -4:].tolist()

    with torch.no_grad():
        over_and_over(work)
    ballast.check()


if __name__ == "__main__":
    main()
