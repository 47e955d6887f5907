"""What a file that is no GGUF looks like, judged by its first bytes, and what to do about it."""

from __future__ import annotations

SNIFF_BYTES = 512
"""How much of a file's start is enough to judge by."""

_CONVERT = "convert it to GGUF (llama.cpp's convert_hf_to_gguf.py) or get a GGUF of the model"
_UNPACK = "unpack it and give the .gguf file inside"

_MAGICS: tuple[tuple[bytes, str, str], ...] = (
    (b"version https://git-lfs", "a Git LFS pointer", "fetch the real file with `git lfs pull`"),
    (b"PK\x03\x04", "a zip archive, perhaps a PyTorch checkpoint", f"{_CONVERT}, or {_UNPACK}"),
    (b"\x80\x02", "a Python pickle, as old PyTorch checkpoints are", _CONVERT),
    (b"\x1f\x8b", "a gzip archive", _UNPACK),
    (b"\xfd7zXZ\0", "an xz archive", _UNPACK),
    (b"(\xb5/\xfd", "a zstd archive", _UNPACK),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", _CONVERT),
    (b"lmgg", "a GGML file, GGUF's predecessor of 2023", "get a GGUF of the model"),
    (b"fmgg", "a GGMF file, GGUF's predecessor of 2023", "get a GGUF of the model"),
    (b"tjgg", "a GGJT file, GGUF's predecessor of 2023", "get a GGUF of the model"),
    (b"algg", "a GGLA file, a LoRA adapter of 2023", "get a GGUF of the model"),
)


def describe_start(start: bytes) -> tuple[str, str]:
    """(what it looks like, what to do) for the first SNIFF_BYTES of a file that is no GGUF."""
    for magic, looks_like, remedy in _MAGICS:
        if start.startswith(magic):
            return looks_like, remedy
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:9].lower() == b"<!doctype" or text[:5].lower() in (b"<html", b"<?xml"):
        return "a web page", "download the file itself: on huggingface.co, its /resolve/ address"
    if text.startswith(b"{"):
        return "a JSON document, perhaps an error from a server", "download the file again"
    if len(start) > 8 and start[8:10] == b'{"':
        return "a safetensors file", _CONVERT
    if start[257:262] == b"ustar":
        return "a tar archive", _UNPACK
    if not start.strip(b"\0"):
        return "only zeros, as an unfinished download is", "download it again"
    if all(byte >= 32 or byte in b"\t\r\n" for byte in start) and start.isascii():
        return "plain text", "give the path of a .gguf file"
    return "no known model format", "give the path of a .gguf file, or download it again"
