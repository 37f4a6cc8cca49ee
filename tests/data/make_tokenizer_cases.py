#!/usr/bin/env python3
"""Writes tokenizer_cases.json: awkward strings with the tokens and byte offsets that BERT's tokenizer gives.

The tokens come from the published algorithm (tokenization.py of github.com/google-research/bert: BasicTokenizer and
WordpieceTokenizer), written here again step by step over whole strings with Python's unicodedata. The offsets come from
a second pass that carries each character's place along, and is checked against the first.

Where this and the published one could differ: the longest word (100 characters here, as models are used; 200 in the
published code, 100 in later ones); the version of Unicode (all characters here are older than 2010). The fast tokenizers
that others use differ from it on these strings in four ways: they keep special pieces in the text whole, know no final
sigma, drop private and unassigned characters, and give marks that NFD reorders the places of the order before.
"""
import json
import pathlib
import unicodedata

LONGEST_WORD = 100
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


# The published algorithm.

def is_whitespace(c):
    return c in " \t\n\r" or unicodedata.category(c) == "Zs"


def is_control(c):
    return c not in "\t\n\r" and unicodedata.category(c) in ("Cc", "Cf")


def is_punctuation(c):
    n = ord(c)
    if 33 <= n <= 47 or 58 <= n <= 64 or 91 <= n <= 96 or 123 <= n <= 126:
        return True
    return unicodedata.category(c).startswith("P")


def is_chinese(c):
    n = ord(c)
    return (0x4E00 <= n <= 0x9FFF or 0x3400 <= n <= 0x4DBF or 0x20000 <= n <= 0x2A6DF or 0x2A700 <= n <= 0x2B73F
            or 0x2B740 <= n <= 0x2B81F or 0x2B820 <= n <= 0x2CEAF or 0xF900 <= n <= 0xFAFF or 0x2F800 <= n <= 0x2FA1F)


def basic_tokens(text, cased):
    clean = "".join(" " if is_whitespace(c) else c
                    for c in text if ord(c) not in (0, 0xFFFD) and not is_control(c))
    clean = "".join(f" {c} " if is_chinese(c) else c for c in clean)
    words = []
    for token in clean.strip().split():
        if not cased:
            token = "".join(c for c in unicodedata.normalize("NFD", token.lower())
                            if unicodedata.category(c) != "Mn")
        start_new = True
        parts = []
        for c in token:
            if is_punctuation(c):
                parts.append([c])
                start_new = True
            else:
                if start_new:
                    parts.append([])
                start_new = False
                parts[-1].append(c)
        words += ["".join(part) for part in parts]
    return " ".join(words).strip().split()


def wordpieces(word, vocabulary):
    """(piece, begin, end) in characters of the word."""
    if len(word) > LONGEST_WORD:
        return [("[UNK]", 0, len(word))]
    pieces, start = [], 0
    while start < len(word):
        end = len(word)
        while start < end:
            piece = ("##" if start > 0 else "") + word[start:end]
            if piece in vocabulary:
                break
            end -= 1
        if start == end:
            return [("[UNK]", 0, len(word))]
        pieces.append((piece, start, end))
        start = end
    return pieces


# The same words with the place of each character.

def decode(data):
    """Characters of bytes with (begin, end); bytes that are not UTF-8 are left out."""
    at, out = 0, []
    while at < len(data):
        for length in (1, 2, 3, 4):
            try:
                out.append((data[at:at + length].decode("utf-8"), at, at + length))
                at += length
                break
            except UnicodeDecodeError:
                pass
        else:
            at += 1
    return out


def normalised(token):
    text = "".join(c for c, _, _ in token)
    lowered, at = text.lower(), 0
    parts = []
    for c, begin, end in token:
        length = len(c.lower())
        for low in lowered[at:at + length]:
            parts += [(d, begin, end) for d in unicodedata.normalize("NFD", low)]
        at += length
    ordered = []
    for part in parts:  # canonical order: an insertion sort of combining characters
        i = len(ordered)
        k = unicodedata.combining(part[0])
        while k and i > 0 and unicodedata.combining(ordered[i - 1][0]) > k:
            i -= 1
        ordered.insert(i, part)
    assert "".join(c for c, _, _ in ordered) == unicodedata.normalize("NFD", lowered)
    return [part for part in ordered if unicodedata.category(part[0]) != "Mn"]


def placed_words(data, cased):
    tokens, token = [], []
    for c, begin, end in decode(data):
        if ord(c) in (0, 0xFFFD) or is_control(c):
            continue
        if is_whitespace(c) or c.isspace() or is_chinese(c):
            tokens.append(token)
            token = []
            if is_chinese(c):
                tokens.append([(c, begin, end)])
        else:
            token.append((c, begin, end))
    tokens.append(token)
    words = []
    for token in tokens:
        word = []
        for part in token if cased else normalised(token):
            if is_punctuation(part[0]):
                words += [word, [part]]
                word = []
            else:
                word.append(part)
        words.append(word)
    return [word for word in words if word]


def tokens_of(data, cased, vocabulary):
    words = placed_words(data, cased)
    assert ["".join(c for c, _, _ in word) for word in words] == basic_tokens(data.decode("utf-8", "ignore"), cased)
    out = []
    for word in words:
        for piece, start, end in wordpieces("".join(c for c, _, _ in word), vocabulary):
            out.append([piece, word[start][1], word[end - 1][2]])
    return out


TEXTS = [
    "", " ", "\t\n\r ", "hello", "Hello, world!", "unaffable", "UNaffable Running runs",
    "hello\tworld\nrunning\r\nruns", "  leading and trailing  ",
    "don't stop-me_now (e.g. this) a.b@c.de http://x.y/z?q=1&r=2#s", "$1,234.56 + 7% = <tag/> ^ ` | ~",
    "[CLS] hello [MASK] world [SEP]", "##hello ## #", "a" * 100, "a" * 101, "hello " + "ab" * 60 + " world",
    "\u00e9" * 100, "\u00e9" * 101, "e\u0301" * 100,
    # accents, precomposed and combining
    "H\u00e9llo na\u00efve \u00c5ngstr\u00f6m", "He\u0301llo", "e\u0301", "\u0301", "a \u0301 b", "\u0301hello\u0301",
    "hell\u0301o, w\u0301orld", "\u1e69 s\u0323\u0307 s\u0307\u0323", "\u0130stanbul I\u0307 \u0131", "stra\u00dfe STRASSE \u1e9e",
    "\u00c6 \u0152 \u00d8 \u0141 \u0110", "\u212b \u212a \u2126", "\u01c5 \u01c4", "o\u0302\u0301\u0309x",
    # Greek: the final sigma, and its context
    "\u03a3", "\u039f\u0394\u039f\u03a3", "\u039f\u0394\u039f\u03a3 \u03a3\u039f\u03a6\u03a3\u03a6", "\u0391\u03a3.\u0392\u03a3", "\u0391.\u03a3",
    "\u0391\u03a3' \u0391\u03a3'\u0391 \u0391\u03a3\u0301 \u0391\u03a3\u0301\u0391", "A\u03a3, -\u03a3 1\u03a3", "\u1f0c\u03bd\u03b8\u03c1\u03c9\u03c0\u03bf\u03c2",
    "\u037e \u0387 \u1fef x\u1fefy",
    # Cyrillic, Georgian, Cherokee, Armenian
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u041c\u0438\u0440! \u0419\u043e\u0434 \u0401\u043b\u043a\u0430", "\u10d2\u10d0\u10db\u10d0\u10e0\u10ef\u10dd\u10d1\u10d0", "\u0531\u0532 \u0587",
    # CJK: ideographs alone, kana and Hangul not
    "\u4f60\u597d", "hello\u4f60\u597dworld", "\u4f60 \u597d\u3002\uff0c\u300c\u5f15\u300d", "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c", "\u30ac\u30d1 \u304b\u3099",
    "\ud55c\uad6d\uc5b4 \ud55c", "\u3400\u4db5 \U00020000 \U0002a6d6\U0002b740 \U0002f800 \uf900\ufa0e", "\u4e00\u0301 \u4e00a\u0301",
    "\uff28\uff45\uff4c\uff4c\uff4f\uff01 \uff21", "\u3005\u3007\u303b", "\u9fff\ua000",
    # emoji
    "\U0001f600", "hello\U0001f600world \U0001f44d\U0001f3fd", "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f", "\U0001f1e9\U0001f1ea",
    # control, format and zero-width characters
    "hel\x00lo", "\x00", "a\x01b\x7fc\x1fd", "a\x0bb\x0cc", "a\x1cb\x85c", "zero\u200bwidth\u200cjoin\u200der \ufeffbom", "soft\u00adhyphen",
    "\u200b", "hello \u200b world", "\ufffdhello\ufffd", "\u202ehello\u202c \u2066x\u2069", "\u0600\u0661", "a\u180eb", "tag\U000e0041",
    "private \ue000 \U000f0000 unassigned \u0378",
    # white space of Unicode
    "a\u00a0b\u2003c\u3000d\u1680e\u202ff\u205fg", "line\u2028para\u2029end", "\u00a0", "\u2028", "a\u2028\u2029 b",
    # right to left
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd", "\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd", "\u0645\u0631\u062d\u0628\u0627\u060c \u0643\u064a\u0641\u061f", "\u0645\u064f\u062d\u064e\u0645\u0651\u064e\u062f \u0622",
    # Indic: marks that take up space stay
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e\u0964", "\u0b95\u0bca \u0bca", "\u0958 \u09dc", "\u302a\u302e\u302b\u302f",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\U0001d15f\U0001d16d\U0001d165", "x\u20dd\u20de",
    # punctuation and symbols of Unicode
    "\u201chello\u201d\u2014\u2018world\u2019\u2026", "\u00abx\u00bb \u00bfx? \u00a1x! \u00a7 \u00b6 \u00b7", "\u20ac5 \u00a35 \u00b0C \u00b1 \u00d7 \u2192 \u00a9", "\u2460 \u00bd \u2167 x\u00b2",
    "a\u2010b\u2011c\u2012d \u203fe", "\u02bchello \u2032 \u2033",
    # ligatures and compatibility characters are not taken apart
    "\ufb01ne \ufb03", "\u017f \u01c6",
    "hello unknown\u2603word hello", "running\u2603", "Mixed\u4f60E\u0301\U0001f600,\u05e9\u00a0\u200bX",
    "hello,\u00e9 a-\u00e9-b", "x\x80y" , "\u0085hello",
]
# Bytes that are not UTF-8.
BYTES = [
    b"hel\xfflo", b"\xff", b"\xc3", b"hello\xc3", b"\xc3hello", b"a\xe4\xbd b", b"\xed\xa0\x80x", b"\xc0\x80x", b"\xf5\x80\x80\x80x",
    b"\xf0\x9f\x98", b"a\x80\x80b", b"\xe4\xbd\xa0\xe4\xbd", b"caf\xe9 hello", b"\xfe\xff\x00h\x00i", b"\xf4\x90\x80\x80", b"\xe0\x80\xafy",
]
WORDS = ["hello", "world", "un", "##aff", "##able", "run", "##ning", "##s", "mixed", "Hello", "leading", "and", "trailing",
         "private", "##word"]


def main():
    data = [text.encode("utf-8") for text in TEXTS] + BYTES
    characters = set()
    for cased in (False, True):
        for item in data:
            for word in placed_words(item, cased):
                characters.update(c for c, _, _ in word)
    characters -= set("\u2603\u1e9e\U0001f1ea\u0378")  # unknown
    inside = ["##" + c for c in sorted(characters) if not is_punctuation(c)]
    vocabulary = list(dict.fromkeys(SPECIAL + WORDS + sorted(characters) + inside))
    known = set(vocabulary)
    # One case a line; text as hexadecimal bytes, so that everything can be said.
    lines = []
    for cased in (False, True):
        for item in data:
            case = {"cased": cased, "bytes": item.hex(), "tokens": tokens_of(item, cased, known)}
            lines.append(json.dumps(case, ensure_ascii=True, separators=(",", ":")))
    text = '{"vocabulary":' + json.dumps(vocabulary, separators=(",", ":")) + ',\n"cases":[\n' + ",\n".join(lines) + "\n]}\n"
    pathlib.Path(__file__).with_name("tokenizer_cases.json").write_text(text, encoding="ascii")


if __name__ == "__main__":
    main()
