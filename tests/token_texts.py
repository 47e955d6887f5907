"""Texts that tokenizers get wrong: the named ones, and any number of generated ones."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable, Sequence

_SENTENCE = "Hello world! Café déjà vu — 123 😊"

NAMED_TEXTS = (
    unicodedata.normalize("NFC", _SENTENCE),
    unicodedata.normalize("NFD", _SENTENCE),
    "",
    " ",
    "  ",
    "   ",
    "        ",
    " leading",
    "  leading",
    "   leading",
    "trailing ",
    "trailing  ",
    "\n",
    "\n\n \n\t\n",
    "a\r\nb\r\n\r\nc\rd",
    "\tone\t\ttwo\t",
    "x = [\n    1,\n\t2,\n]\n",
    "👨‍👩‍👧‍👦",
    "🇨🇭🇯🇵🇺🇳 🏴󠁧󠁢󠁳󠁣󠁴󠁿",
    "\u200d",
    "a\u200db",
    "\ufeff",
    "\ufeffafter the mark",
    "\0",
    "a\0b\0\0",
    "สวัสดีครับ ยินดีที่ได้รู้จัก",
    "வணக்கம், உலகம்",
    "नमस्ते दुनिया",
    "שלום עולם مرحبا بالعالم",
    "你好，世界！これはペンです。안녕하세요",
    "漢字かなカナ、ﾊﾝｶｸ",
    "1 22 333 4444 55555 666666 7777777 1234567890",
    "3.14159, 1,000,000 and -1e-10",
    "١٢٣٤ ４５６７ Ⅷ ½ ①",
    "a\u0301\u0302\u0303 e\u0308\u0308 \u0301\u0301",
    "I'm you're he'LL we'Ve IT'S 'tis ''' '",
    "camelCase HTTPServer XMLHttpRequest iPhone ÉCOLE école",
    "word__word--word...word///word",
    "no\u00a0break\u2003em\u3000ideographic\u2028line\u2029paragraph\u0085next",
    "\u001c\u001d\u001e\u001f\u000b\u000c\u007f",
    "\ufffd\ufffe\uffff\U0010ffff\ue000",
    "▁▁ ▁a▁ b",
    "Ġhello Ċ",
    "<0x0A><0xFF> <unk> <s> </s>",
    "a" * 10_000,
)

_ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "0123456789",
    " \t\n\r\v\f",
    "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
    "éèêëçñöüßÆøÅłžđŐ",
    "абвгдежзАБВЯЮ",
    "αβγδεΑΒΓΔ",
    "אבגדהאבגדה",
    "ابتثجحخ٠١٢٣",
    "अआइकखगघािी्ं०१२",
    "กขคงจิีึืุูั่้",
    "アイウエオあいうえお漢字一龥豈〇",
    "가나다라마ㄱㄴㄷ힣",
    "😀🎉👍🏽❤️\u200d🇫🇷🧑🏿",
    "\u0300\u0301\u0308\u20dd\u0489",
    "\u00a0\u1680\u2003\u2028\u2029\u202f\u205f\u3000\u0085\u200b\ufeff",
    "²³¼Ⅻ①໑１２３",
    "“”‘’—–…！？，。；：、《》「」·•",
    "€£¥©®™°±×÷∑√∞→⇒",
    "\0\x01\x1b\x1c\x1f\x7f\x80\x9f\xad",
    "\ufffd\ufffe\uffff\U0001ffff\U0010ffff\ue000\U000f0000",
)

_WORDS = (
    "the", "Hello", "world", "don't", "I'LL", "we've", "HTTPServer", "naïve", "x86_64",
    "function", "return", "  ", "\n\n", "    ", "<|im_end|>", "</s>", "'s", "'RE", "://", "...",
)  # fmt: skip


def _letters(random: random.Random) -> str:
    alphabet = random.choice(_ALPHABETS)
    return "".join(random.choices(alphabet, k=random.randint(1, 8)))


def _run(random: random.Random) -> str:
    return random.choice(random.choice(_ALPHABETS)) * random.randint(2, 12)


def _word(random: random.Random) -> str:
    return random.choice(_WORDS)


def _number(random: random.Random) -> str:
    return random.choice(("", " ", "  ", "\n", "-", "a")) + str(random.randrange(10**9))


def _any_characters(random: random.Random) -> str:
    ends = (0x250, 0x3000, 0x10000, 0x20000, 0x110000)
    codes = (random.randrange(random.choice(ends)) for _ in range(random.randint(1, 4)))
    return "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000)


def generated_texts(seed: int, count: int, special: Sequence[str]) -> list[str]:
    """`count` texts, the same for the same seed; `special` token texts occur, whole and cut."""
    source = random.Random(seed)

    def token(source: random.Random) -> str:
        text = source.choice(special)
        return text if source.random() < 0.8 else text[: source.randint(1, len(text))]

    makers: list[Callable[[random.Random], str]] = [
        _letters, _letters, _letters, _run, _word, _word, _number, _any_characters,
    ]  # fmt: skip
    makers += [token] if special else []
    return [
        source.choice(("", "", " ")).join(
            source.choice(makers)(source) for _ in range(source.randint(1, 8))
        )
        for _ in range(count)
    ]
