"""A character is a token, whose id is its place in the alphabet."""


def reference(texts):
    begin = [["0123456789 ".index(character) for character in text[:20]] for text in texts]
    return {"tokens": [len(text) for text in texts], "begin": begin}
