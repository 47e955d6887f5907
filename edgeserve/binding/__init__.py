"""The only Python that touches cffi: finds the native library, checks it, and calls it."""
