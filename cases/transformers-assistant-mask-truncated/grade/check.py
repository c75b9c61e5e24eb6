"""By the words: a role is a token, and so is each word behind it."""

from subject import WORDS


def reference(chats, length):
    ids, masks = [], []
    for chat in chats:
        words, mask = [], []
        for turn in chat:
            said = turn["content"].split()
            words += [turn["role"], *said]
            mask += [0, *[int(turn["role"] == "assistant")] * len(said)]
        ids.append([WORDS.index(word) for word in words][:length])
        masks.append(mask[:length])
    return {"ids": ids, "masks": masks}
