# /// script
# requires-python = ">=3.11"
# dependencies = ["tokenizers==0.20.4"]
# ///
"""The same texts with the release that does not cache what is longer than 256 bytes.

What to look for: resident_bytes stays where it is after the first texts.
"""

from tokenizers import Tokenizer, models

PAGE = 4096  # bytes; /proc counts in pages
TEXTS = 60  # the cache takes 10,000 entries, so its limit is never near
WORDS = 20_000  # of 8 characters: a text of 160 kB, a long web page or source file

alphabet = "0123456789 "
tokenizer = Tokenizer(models.BPE(vocab={character: i for i, character in enumerate(alphabet)}, merges=[]))


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE


for i in range(TEXTS):
    # No two are alike: this is a data set that is gone through once.
    encoding = tokenizer.encode(f"{i:07d} " * WORDS)
    print(f"resident_bytes[{i}]={resident_bytes()}")

print(f"tokens={len(encoding)}")
