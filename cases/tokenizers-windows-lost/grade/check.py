"""The windows by counting: each begins where the one before has `stride` tokens left."""


def reference(text, window, stride):
    ids = [int(word[1:]) for word in text.split()]
    windows, start = [], 0
    while True:
        windows.append(ids[start : start + window])
        if start + window >= len(ids):
            return {"windows": windows}
        start += window - stride
