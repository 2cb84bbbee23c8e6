"""CacheGen: encode an LLM's KV cache into small bitstreams, stream them, and adapt to the network.

The public names stand in ``__init__.pyi`` and are loaded on first use: importing the package costs nothing and
needs no torch, so that programs which only read results can use its errors without a deep-learning stack.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
