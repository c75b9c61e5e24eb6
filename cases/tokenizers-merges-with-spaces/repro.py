# /// script
# requires-python = ">=3.11"
# dependencies = ["tokenizers==0.19.1"]
# ///
"""Train a BPE tokenizer whose tokens may have spaces in them, and load what it saves.

What to look for: it trains and encodes, and then its own file is refused: Exception, data did not match any variant of
untagged enum ModelWrapper.
"""

from tokenizers import Tokenizer, models, trainers

LINES = ["mov rbx , rdi", "mov rdi , rbx", "push rbx", "push rdi"] * 10  # what is learnt is whole instructions
VOCABULARY = 40  # more than the characters in them, so that there are merges

tokenizer = Tokenizer(models.BPE())  # no pre-tokenizer splits at spaces, so tokens can have them
tokenizer.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=VOCABULARY, show_progress=False))
trained = [tokenizer.encode(line).tokens for line in LINES]
print(f"tokens_with_a_space={sum(' ' in token.strip() for token in tokenizer.get_vocab())}")

loaded = Tokenizer.from_str(tokenizer.to_str())  # the text of tokenizer.json
print(f"lines_changed={sum(loaded.encode(line).tokens != tokens for line, tokens in zip(LINES, trained, strict=True))}")
print(f"lines={len(trained)}")
