"""What is said, and what there is to choose from, in the scenes of the terminal chat."""

from __future__ import annotations

from edgeserve.tui.client import OfferedModel

ANSWER = """A *monad* is a way to **chain** computations that carry something extra.

```python
def bind(value, function):
    return None if value is None else function(value)
```
"""

MARKDOWN = """## Three ways to sort

1. **Merge sort** keeps equal items in order.
2. **Quicksort** is fast, but has bad days:
   - sorted input with a poor pivot
   - many equal keys
3. `sorted()`, which is *Timsort*.

| Name      | Time       | Stable |
|-----------|-----------:|:------:|
| merge     | n log n    | yes    |
| quick     | n log n    | no     |
| insertion | n²         | yes    |

> Premature optimisation is the root of all evil.

```sh
python -m timeit "sorted(range(1000))"
```

More at [the docs](https://docs.python.org/3/howto/sorting.html).
"""

THOUGHTS = """The user asks which of two trains arrives first. I need the distance and both speeds.

Train A covers 240 km at 80 km/h: 3 hours. Train B leaves an hour later but runs at 120 km/h, so \
it needs 2 hours and arrives at the same time.

Wait: B stops for ten minutes at the border. So A is first by ten minutes."""

OFFERED = (
    OfferedModel(
        "llama-3.2-1b", "Llama 3.2 1B", True, 1_320_000_000, True, 31.0, license="Llama 3.2"
    ),
    OfferedModel("qwen2.5:3b", "Qwen", True, 1_930_000_000, True, 14.2, owner="Ollama"),
    OfferedModel(
        "Mistral-7B-Instruct-v0.3-Q4_K_M-imatrix", "", True, 4_370_000_000, True, 6.1,
        owner="LM Studio",
    ),
    OfferedModel(
        "smollm2-135m", "SmolLM2", False, 145_000_000, True, 210.0, license="Apache 2.0",
        note="small enough for anything, and not clever",
    ),
    OfferedModel("gemma-3-1b", "Gemma 3", False, 806_000_000, True, 38.0, license="Gemma"),
    OfferedModel("qwen3-4b", "Qwen3 4B", False, 2_500_000_000, True, 11.0, license="Apache 2.0"),
    OfferedModel("qwen3-30b-a3b", "", False, 18_600_000_000, False, None, license="Apache 2.0"),
)  # fmt: skip

TITLES = (
    ("Plan a week in Lisbon", 3600 * 2, ("travel",), True),
    ("What is a monad?", 60 * 4, (), False),
    ("Die Heizung ist kaputt, was tun?", 3600 * 5, (), False),
    ("日本語のテスト：長いタイトルはどう切られますか", 3600 * 26, (), False),
    ("Refactor the parser so that errors carry their place", 86400 * 3, ("work", "parser"), False),
    ("Letter to the landlord", 86400 * 9, (), False),
    ("untidy \x1b[31mtitle\u202e with controls", 86400 * 40, (), False),
)
