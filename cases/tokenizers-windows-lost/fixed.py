# /// script
# requires-python = ">=3.11"
# dependencies = ["tokenizers==0.23.3"]
# ///
"""The same documents with the release that tokenizes what is behind the first window as well.

What to look for: 8 windows of the long one, and no token is lost.
"""

from tokenizers import Tokenizer, models, pre_tokenizers

WINDOW, STRIDE = 384, 128  # tokens, and those that two windows share: as for question answering with BERT
LENGTHS = (300, 2000)  # of a document that fits into one window, and of one that does not

words = [f"w{i}" for i in range(max(LENGTHS))]
tokenizer = Tokenizer(models.WordLevel({"[UNK]": len(words), **{word: i for i, word in enumerate(words)}}, "[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # a word is a token
tokenizer.enable_truncation(WINDOW, stride=STRIDE)
for length in LENGTHS:
    encoding = tokenizer.encode(" ".join(words[:length]))
    windows = [encoding, *encoding.overflowing]
    print(f"windows_of_{length}={len(windows)}")
    print(f"tokens_lost_of_{length}={length - len({token for window in windows for token in window.ids})}")
