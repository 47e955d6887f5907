"""A plan's weights on their way into memory, in C and on a thread of their own, beside all else
that a start has to do."""

from __future__ import annotations

from threading import Thread

from edgeserve.loader.tensors import TensorReader
from edgeserve.plan.ops import Plan
from edgeserve.runner.native_weights import NativeWeights


class LoadingWeights:
    """Begins at once. `wait` for them or `abandon` them, before the reader is closed."""

    def __init__(self, plan: Plan, tensors: TensorReader, num_threads: int) -> None:
        self.weights = NativeWeights(plan)
        self._tensors = tensors
        self._error: BaseException | None = None
        self._thread = Thread(target=self._fill, args=(num_threads,), name="edgeserve-load")
        self._thread.start()
        tensors.load_began.wait()  # until it needs the GIL no more, or it would have to share it

    def _fill(self, num_threads: int) -> None:
        try:
            self.weights.fill(self._tensors, num_threads)
        except BaseException as error:  # `wait` raises it
            self._error = error
        finally:
            self._tensors.load_began.set()

    def wait(self) -> None:
        """Until all are there. Raises what TensorReader.load_weights does."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def abandon(self) -> None:
        """Stops reading, and gives the memory back. Twice is fine."""
        self._tensors.cancel()
        self._thread.join()
        self.weights.close()
