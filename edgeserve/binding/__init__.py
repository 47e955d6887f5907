"""The only Python that touches cffi: finds the native library, checks it, and calls it."""

from edgeserve.binding.dequantize import dequantize
from edgeserve.binding.library import NativeLibrary, QuantType, load_library

__all__ = ["NativeLibrary", "QuantType", "dequantize", "load_library"]
