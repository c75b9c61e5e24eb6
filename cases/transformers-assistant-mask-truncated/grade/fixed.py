"""`solve` tokenizes chats that are truncated, and hands out ids, and a mask that is 1 where the assistant speaks."""

import random

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

WORDS = ["<unk>", "user", "assistant", *"abcdefghijklmnopqrst"]
TEMPLATE = (
    "{% for m in messages %}{{ m.role }} {% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %} {% endfor %}"
)


def inputs(seed):
    draw = random.Random(seed)
    chats = []
    for _ in range(6):
        turns = [" ".join(draw.choices(WORDS[3:], k=draw.randrange(3, 12))) for _ in range(4)]
        chats.append([{"role": ("user", "assistant")[i % 2], "content": turn} for i, turn in enumerate(turns)])
    return {"chats": chats, "length": draw.randrange(8, 25)}


def tokenizer():
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token=WORDS[0]))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token=WORDS[0])


def solve(chats, length):
    tokens, ids, masks = tokenizer(), [], []
    for chat in chats:
        out = tokens.apply_chat_template(
            chat, chat_template=TEMPLATE, return_dict=True, return_assistant_tokens_mask=True,
        )  # whole: an answer whose end is cut off has no token in the mask
        ids.append(list(out["input_ids"])[:length])
        masks.append(list(out["assistant_masks"])[:length])
    return {"ids": ids, "masks": masks}
