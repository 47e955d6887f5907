"""How each `tokenizer.ggml.pre` name of byte-pair vocabularies cuts text, and its other habits.

The rules are the reference's. Applying them is pretokenizers.py's; knows no tokens, ids, merges.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from edgeserve.frozen import frozen
from edgeserve.text.unicode_classes import NUMBER

Span = tuple[int, int]
Rule = str | Callable[[str, Sequence[Span]], list[Span]]
"""A pattern whose matches, and what lies between them, become pieces; or a function that cuts."""


@frozen
class PreTokenizerStyle:
    """What a `tokenizer.ggml.pre` name stands for: its rules, and the habits that go with them.

    `ignores_merges`: a piece that is itself a token is not merged from its parts.
    `byte_level`: tokens are spelt in GPT-2's byte alphabet; else in plain UTF-8 with byte tokens.
    `escapes_spaces`: a space is written as U+2581. `forces_bos`: also against the file's word.
    `keeps_newline_runs`: a run of newlines that is a token is not merged from its parts.
    """

    rules: tuple[Rule, ...]
    ignores_merges: bool = False
    adds_bos: bool = False
    forces_bos: bool = False
    has_default_bos: bool = True
    byte_level: bool = True
    escapes_spaces: bool = False
    keeps_newline_runs: bool = False


# --- rules -------------------------------------------------------------------------------------
# Categories stand in brackets only, so that expanding one is a replacement of text.

_CONTRACTION = r"'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
_LINES_THEN_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"

_GPT2 = r"'(?:[stmd]|re|ve|ll)| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def _words(numbers: str, spaces: str = _LINES_THEN_SPACES) -> str:
    return (
        rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}]+|{numbers}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{spaces}"
    )


def _cased_words(marks: str, suffix: str, numbers: str) -> str:
    """Words that begin anew at a capital. Beyond ASCII the reference tells no case apart."""
    upper, lower = rf"[A-Z\p{{l}}{marks}]", rf"[a-z\p{{l}}{marks}]"
    lead = r"[^\r\n\p{L}\p{N}]?"
    return (
        f"{lead}{upper}*{lower}+{suffix}|{lead}{upper}+{lower}*{suffix}|{numbers}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_LINES_THEN_SPACES}"
    )


_LLAMA3 = _words(r"[\p{N}]{1,3}")
_QWEN2 = _words(r"[\p{N}]")
_QWEN35 = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|[\p{{N}}]"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_LINES_THEN_SPACES}"
)
_JAIS2 = _words(
    r"[\p{N}]{1,3}",
    r"\s*[\r\n]+|"
    + "".join(rf"\s{{{2**n}}}(?!\S)|" for n in range(9, 1, -1))
    + r"\s{1,2}(?!\S)|\s",
)
_UFAKZEKA = (
    r"[^\r\n\p{L}\p{N}]?[\p{L}]+|[\p{N}]"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_LINES_THEN_SPACES}"
)
_BAILING_MOE = _words(r"[\p{N}]", r"\s*[\r\n]|\s+(?!\S)|\s+")
_SEED_CODER = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}]+|[\p{{N}}]"
    rf"| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_LINES_THEN_SPACES}"
)
_EXAONE_MOE = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}](?:[\p{{L}}\p{{M}}]| [\p{{L}}])*|[\p{{N}}]"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_ANY_CASE_WORDS = (  # Youtu's and Tiny Aya's, whose case the reference does not tell apart
    rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+(?:{_CONTRACTION})?|%s"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_LINES_THEN_SPACES}"
)
_KIMI_K2 = (
    r"[\p{Han}]+|[^\r\n\p{L}\p{HanL}\p{N}]?[\p{L}]+"
    rf"(?:{_CONTRACTION})?|[\p{{N}}]{{1,3}}"
    rf"| ?[^\s\p{{L}}\p{{HanL}}\p{{N}}]+[\r\n]*|{_LINES_THEN_SPACES}"
)
_DEEPSEEK3_START = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+"
)
_DEEPSEEK3 = rf"{_DEEPSEEK3_START}[\r\n]*|{_LINES_THEN_SPACES}"
_SPARK = rf"{_DEEPSEEK3_START}|[\r\n]|\s+(?!\S)|\s+"
_CJK_WORDS = r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_CJK_AND_BELOW = r"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_YOUTU_EAST_ASIAN = (
    r"[\uac00-\ud7a3\u3131-\u318e]+"
    r"|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+"
    rf"|[\u3105-\u312f]+|{_CJK_WORDS}"
)
_AFMOE_ASIAN = (
    r"[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f"
    r"\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f"
    r"\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
_BLOOM = r" ?[^(\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_LINES = r"[^\n]+|\n+"
_FALCON_PUNCTUATION = r"[\p{P}$+<=>\^~|%s]+"

# DeepSeek-LLM's letters with case, as its own tokenizer lists them.
_DEEPSEEK_CASED = (
    r"A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293"
    r"\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c"
    r"\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5"
    r"\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    r"\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59"
    r"\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc"
    r"\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107"
    r"\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    r"\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee"
    r"\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e"
    r"\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f"
    r"\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    r"\U000118a0-\U000118df\U0001e900-\U0001e943"
)


def _thousands(classes: str, spans: Sequence[Span]) -> list[Span]:
    """Runs of numbers in threes from the right; what stands before a run joins its first group.

    That joining is the reference's own: it changes how the spaces before a number are cut.
    """
    pieces: list[Span] = []
    for start, end in spans:
        piece_start = start
        for run in re.finditer(f"[0-9{NUMBER}]+", classes[start:end]):
            first, last = start + run.start(), start + run.end()
            for cut in range(first + ((last - first) % 3 or 3), last + 1, 3):
                pieces.append((piece_start, cut))
                piece_start = cut
        if piece_start < end:
            pieces.append((piece_start, end))
    return pieces


def _digit_triples(classes: str, spans: Sequence[Span]) -> list[Span]:
    """A cut before every group of three ASCII digits, counted from the right of their run."""
    pieces: list[Span] = []
    for start, end in spans:
        piece_start = start
        for run in re.finditer("[0-9]+", classes[start:end]):
            first, last = start + run.start(), start + run.end()
            for cut in range(first + (last - first) % 3, last, 3):
                if cut > piece_start:
                    pieces.append((piece_start, cut))
                    piece_start = cut
        pieces.append((piece_start, end))
    return pieces


# --- names -------------------------------------------------------------------------------------

_DIGITS = r"[\p{N}]"
_TRIPLES = r"[\p{N}]{1,3}"
_ANY_CONTRACTION = f"(?:{_CONTRACTION})?"

_STYLES = (
    (
        PreTokenizerStyle((_FALCON_PUNCTUATION % "", _GPT2, r"[\p{N}]+", "[0-9][0-9][0-9]")),
        "default",
    ),
    (
        PreTokenizerStyle((_GPT2,)),
        "gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert "
        "jina-v1-en jina-v2-code roberta-bpe mpt olmo jais exaone4 trillion granite-docling",
    ),
    (
        PreTokenizerStyle((_DIGITS, _GPT2)),
        "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2",
    ),
    (PreTokenizerStyle((_FALCON_PUNCTUATION % "`", _GPT2, "[0-9][0-9][0-9]")), "falcon"),
    (
        PreTokenizerStyle((_LLAMA3,), ignores_merges=True, adds_bos=True),
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
    ),
    (PreTokenizerStyle((_LLAMA3,)), "dbrx smaug-bpe"),
    (PreTokenizerStyle((_LLAMA3,), has_default_bos=False), "chatglm-bpe"),
    (PreTokenizerStyle((_LLAMA3,), ignores_merges=True, has_default_bos=False), "glm4 glm5"),
    (PreTokenizerStyle((_TRIPLES, _words(r"[\p{N}]+")), ignores_merges=True), "minicpm5"),
    (PreTokenizerStyle((_JAIS2,)), "jais-2"),
    (
        PreTokenizerStyle((_QWEN2,)),
        "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
    ),
    (PreTokenizerStyle((_QWEN35,)), "qwen35"),
    (PreTokenizerStyle((_UFAKZEKA,)), "ufakzeka"),
    (PreTokenizerStyle((_LINES, _QWEN2)), "laguna"),
    (PreTokenizerStyle((_BAILING_MOE,)), "bailingmoe bailingmoe2 llada-moe"),
    (PreTokenizerStyle((_SEED_CODER,)), "seed-coder"),
    (PreTokenizerStyle((_EXAONE_MOE,)), "exaone-moe"),
    (PreTokenizerStyle((_KIMI_K2,)), "kimi-k2"),
    (
        PreTokenizerStyle(
            (
                r"[\r\n]",
                rf"\s?[{_DEEPSEEK_CASED}]+",
                r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
                r"\s+\Z",
                _CJK_AND_BELOW,
                r"[\p{N}]+",
            )
        ),
        "deepseek-llm",
    ),
    (
        PreTokenizerStyle((r"[\r\n]", r"\s?[\p{L}]+", r"\s?[\p{P}]+", _CJK_AND_BELOW, _DIGITS)),
        "deepseek-coder",
    ),
    (
        PreTokenizerStyle((_TRIPLES, _CJK_WORDS, _DEEPSEEK3)),
        "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
    ),
    (PreTokenizerStyle((_TRIPLES, _CJK_WORDS, _SPARK, _DIGITS)), "spark2_5"),
    (PreTokenizerStyle((_thousands, _AFMOE_ASIAN, _DEEPSEEK3)), "afmoe"),
    (
        PreTokenizerStyle((_YOUTU_EAST_ASIAN, _ANY_CASE_WORDS % _DIGITS), ignores_merges=True),
        "youtu",
    ),
    (PreTokenizerStyle((_thousands, _ANY_CASE_WORDS % _TRIPLES)), "tiny_aya cohere2moe"),
    (
        PreTokenizerStyle((_cased_words("", "", _DIGITS),), ignores_merges=True, adds_bos=True),
        "tekken",
    ),
    (
        PreTokenizerStyle((_cased_words("", _ANY_CONTRACTION, _TRIPLES),)),
        "gpt-4o llama4 kanana2 talkie minimax-m2",
    ),
    (
        PreTokenizerStyle(
            (_cased_words(r"\p{M}", _ANY_CONTRACTION, _TRIPLES),), ignores_merges=True
        ),
        "granite-embed-multi-97m",
    ),
    (PreTokenizerStyle((_BLOOM,)), "poro-chat bloom gpt3-finnish"),
    (PreTokenizerStyle((_BLOOM, _DIGITS)), "viking"),
    (PreTokenizerStyle((r"[\p{N}]+", _digit_triples)), "superbpe"),
    (
        PreTokenizerStyle(
            (
                "<sentinel:[0-9]+>",
                "IMGIMG[A-I]{1,4}Z",
                r"[\t\n]|    |  ",
                _DIGITS,
                r"[\p{P}!-/:-@\[-`{-~]",
                _GPT2,
            ),
            adds_bos=True,
        ),
        "chameleon",
    ),
    (
        PreTokenizerStyle(
            (_LINES,),
            forces_bos=True,
            byte_level=False,
            escapes_spaces=True,
            keeps_newline_runs=True,
        ),
        "gemma4 granite-embed-multi-311m",
    ),
    (PreTokenizerStyle((_LINES,), byte_level=False, escapes_spaces=True), "sarvam-moe"),
)

PRE_TOKENIZER_STYLES: Final[Mapping[str, PreTokenizerStyle]] = {
    name: style for style, names in _STYLES for name in names.split()
}
