"""`ft.compression.*`: what clients send, in fewer bytes."""

from fedtrue.algorithm.compression import none, qsgd, quantize, random_k, sign, top_k

__all__ = ["none", "qsgd", "quantize", "random_k", "sign", "top_k"]
