# /// script
# requires-python = ">=3.11"
# dependencies = ["jinja2==3.1.6", "numpy==2.4.6", "tokenizers==0.20.3", "transformers==4.46.3"]
# ///
"""A chat that is cut off inside the assistant's answer: the mask says that there is no answer to learn from.

What to look for: of an answer of 6 tokens truncation leaves 4, and the mask has none of them (masked_truncated=0). In a
chat of two answers the second is lost (masked_second_truncated=6 of 8). No error, no warning.
"""

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

WORDS = ["<unk>", "user", "assistant", *"abcdefghijkl"]  # a word is a token; nothing is downloaded
ANSWERS = set("ghijkl")  # words that only the assistant says
TEMPLATE = (
    "{% for m in messages %}{{ m.role }} {% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %} {% endfor %}"
)
QUESTION = {"role": "user", "content": "a b"}
ANSWER = {"role": "assistant", "content": "g h i j k l"}
CHATS = {  # messages, and how many tokens are kept
    "whole": ([QUESTION, ANSWER], 100),
    "truncated": ([QUESTION, ANSWER], 8),  # two tokens of the answer are cut off
    "second_truncated": ([QUESTION, ANSWER, QUESTION, ANSWER], 16),  # four of the second
}


def tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token=WORDS[0]))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token=WORDS[0])


def main() -> None:
    tokens = tokenizer()
    for name, (messages, length) in CHATS.items():
        out = tokens.apply_chat_template(
            messages, chat_template=TEMPLATE, return_dict=True, return_assistant_tokens_mask=True,
            truncation=True, max_length=length,
        )  # fmt: skip
        print(f"answer_tokens_{name}={sum(WORDS[i] in ANSWERS for i in out['input_ids'])}")
        print(f"masked_{name}={sum(out['assistant_masks'])}")


if __name__ == "__main__":
    main()
