"""A decoder of chains that is slow and obvious: everything is computed anew in every round."""

import torch


@torch.inference_mode()
def chain_rounds(drafter, prompt, limit, eos_ids):
    """Greedy output and the committed length of each round: draft L tokens, keep those that the target agrees with.

    A round ends where the output does, at an end of sequence or at `limit` tokens.
    """
    target, tokens, committed = drafter.target, list(prompt), []

    def chosen(row, sequence):
        return int(target.model(torch.tensor([sequence]), use_cache=False).logits[0, row].argmax())

    def ended():
        return tokens[-1] in eos_ids or len(tokens) == len(prompt) + limit

    tokens.append(chosen(-1, tokens))
    while not ended():
        drafted = draft(drafter, tokens)
        start = len(tokens)
        for candidate in [*drafted, None]:
            tokens.append(chosen(-1, tokens))
            if ended() or tokens[-1] != candidate:
                break
        committed.append(len(tokens) - start)
    return tokens[len(prompt) :], committed


def draft(drafter, tokens):
    """The most likely token at each of the L positions behind the last one."""
    ids = torch.tensor([tokens])
    _, features = drafter.target.forward(ids[:, :-1], drafter.layer_ids)
    anchor = torch.tensor([[len(tokens) - 1]])
    best = drafter.logits(drafter.context(features, ids), ids, anchor)[0, 0].argmax(dim=-1)
    return (best if drafter.token_of is None else drafter.token_of[best]).tolist()
