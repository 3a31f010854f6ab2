"""`ft.privacy.*`: clipping, noise, and the privacy that they give."""

from fedtrue.algorithm.privacy import epsilon, gaussian

__all__ = ["epsilon", "gaussian"]
