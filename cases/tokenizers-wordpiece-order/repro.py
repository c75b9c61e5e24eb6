# /// script
# requires-python = ">=3.11"
# dependencies = ["tokenizers==0.23.1"]
# ///
"""Train a WordPiece tokenizer on one line of text, without dropout, and print what came out of it.

What to look for: run the script twice. vocabulary, a hash of all tokens by id, and encoding, a hash of the ids of three
words, are others each time.
"""

import hashlib

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

TEXT = "the tokenizers of this library split words into pieces and give each piece a number"
SPECIAL = ["[UNK]"]
SIZE = 50  # room for some of the pairs that occur equally often: a tie decides which ones


def digest(values: list) -> str:
    return "sha256:" + hashlib.sha256(repr(values).encode()).hexdigest()


tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
trainer = trainers.WordPieceTrainer(vocab_size=SIZE, special_tokens=SPECIAL, show_progress=False)
tokenizer.train_from_iterator([TEXT], trainer)

ids = tokenizer.get_vocab()
words = tokenizer.encode("tokenizers split words")
print(f"vocabulary={digest(sorted(ids, key=ids.get))}")
print(f"encoding={digest(words.ids)}")
print(f"tokens={len(ids)}")
print(*zip(words.tokens, words.ids, strict=True))
