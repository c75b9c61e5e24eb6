"""`solve` splits a document into windows of a length that overlap, and hands out the ids of each window.

No token may be lost: the windows are to cover the document, each but the last as long as it may be.
"""

import random

from tokenizers import Tokenizer, models, pre_tokenizers

WORDS = 6000


def inputs(seed):
    draw = random.Random(seed)
    window = draw.randrange(200, 400)
    length = draw.randrange(3 * window, WORDS)
    words = [f"w{draw.randrange(WORDS)}" for _ in range(length)]
    return {"text": " ".join(words), "window": window, "stride": draw.randrange(20, window // 2)}


def tokenizer():
    """A tokenizer for which a word is a token: w17 has the id 17."""
    made = Tokenizer(models.WordLevel({"[UNK]": WORDS, **{f"w{i}": i for i in range(WORDS)}}, "[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made


def solve(text, window, stride):
    tokens = tokenizer()
    encoding = tokens.encode(text)  # whole: the release stops at the end of the first window if it is to truncate
    encoding.truncate(window, stride=stride)
    return {"windows": [each.ids for each in [encoding, *encoding.overflowing]]}
