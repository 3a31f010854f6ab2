"""What happens to contributions between a client and the server: four parts that every method takes.

    client work ─▶ compression ─▶ clipping, noise ─▶ attack ─▶ aggregator: mean or robust ─▶ noise ─▶ receive

Each wraps a `Phase`, so neither methods nor the engine know of them, except that a robust aggregator needs the
contributions of a cohort one by one (`Phase.combine`). Clipping comes after compression, because it bounds what enters
the sum: every compressed message may be multiplied by a number.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from fedtrue.algorithm.attack import Attack, hostile_work
from fedtrue.algorithm.compression import Compression, compressed_work
from fedtrue.algorithm.interface import ClientWork, Loss, Phase
from fedtrue.algorithm.privacy import Privacy, privacy_spent, private_receive, private_work
from fedtrue.algorithm.robust import Aggregator
from fedtrue.spec import with_common_options

DESCRIPTIONS = {
    "compression": 'of what clients send, one of `ft.compression`, e.g. "top_k(share=0.01)".',
    "aggregator": 'what the server takes in place of the mean, one of `ft.aggregator`, e.g. "median".',
    "privacy": 'clipping and noise, one of `ft.privacy`, e.g. "gaussian(clip=1.0, noise=1.0)".',
    "attack": 'what hostile clients send, one of `ft.attack`, e.g. "scaled(share=0.2, factor=-1)".',
}


class Upload(NamedTuple):
    """The parts of the way up; None: nothing happens."""

    compression: Compression | None = None
    aggregator: Aggregator | None = None
    privacy: Privacy | None = None
    attack: Attack | None = None

    @property
    def names(self) -> list[str]:
        """Of the options that are used."""
        return [name for name in DESCRIPTIONS if getattr(self, name) is not None]

    def phase(self, phase: Phase) -> Phase:
        """The same phase with these parts on the way from its clients to the server."""
        if not self.names:
            return phase
        combine = self.aggregator.combine if self.aggregator else None
        private = self.privacy
        return phase._replace(
            work=lambda loss: self._work(phase, loss),
            receive=private_receive(phase.receive, private) if private else phase.receive,
            combine=combine,
            receives_nothing=phase.receives_nothing or (private is not None and private.central),
        )

    def _work(self, phase: Phase, loss: Loss) -> ClientWork:
        work = phase.work(loss)
        if self.compression is not None and self.compression.encode is not None:
            work = compressed_work(work, self.compression)
        if self.privacy is not None:
            work = private_work(work, self.privacy)
        return work if self.attack is None else hostile_work(work, self.attack)


NO_UPLOAD = Upload()


def upload_options(factory: Callable[..., Any]) -> Callable[..., Any]:
    """A factory of methods that takes these options too, by name."""

    def add(method: Any, name: str, options: dict[str, Any]) -> Any:
        upload = Upload(**options)
        if upload == NO_UPLOAD:
            return method
        check_upload(method, name, upload)
        return replace(method, upload=upload)

    return with_common_options(factory, DESCRIPTIONS, add)


def check_upload(method: Any, name: str, upload: Upload) -> None:
    """Refuses combinations that would not be what they are called."""
    compression, aggregator, privacy, _ = upload
    sampling = method.sampling
    if compression is not None and compression.feedback and sampling.with_replacement:
        raise ValueError(
            f"sampling {sampling.name!r} may draw a client twice in a round; compression {compression.name!r} keeps "
            "what a client has not sent: use sampling 'uniform', or a compression without feedback, e.g. 'qsgd'"
        )
    if aggregator is not None and aggregator.combine is not None:
        if sampling.uploads is not None or sampling.fixed_denominator:
            cure = "'poisson(fixed_denominator=false)'" if sampling.fixed_denominator else "'uniform'"
            raise ValueError(
                f"sampling {sampling.name!r} weighs clients by probabilities, and aggregator {aggregator.name!r} "
                f"counts each once: use sampling {cure}"
            )
        if privacy is not None and privacy.noise > 0:
            raise ValueError(
                f"the noise of {privacy.name!r} is accounted for a sum over clients, and aggregator "
                f"{aggregator.name!r} is none: leave one of them out"
            )
    if privacy is not None:
        _check_privacy(method, name, privacy, compression)


def _check_privacy(method: Any, name: str, privacy: Privacy, compression: Compression | None) -> None:
    """Refuses what the account does not hold for."""
    if privacy.local and compression is not None and compression.encode is not None:
        raise ValueError(
            f"compression {compression.name!r} with noise at the clients sends little but noise: use place='server', "
            "or leave the compression out"
        )
    if privacy.noise > 0 and method.sampling.scoring is not None:
        raise ValueError(
            f"with sampling {method.sampling.name!r} clients report their losses without noise, which the privacy "
            "account does not know: use sampling 'poisson' or 'uniform'"
        )
    if not privacy.central:
        return
    if method.sampling.rate is None or not method.sampling.fixed_denominator:
        raise ValueError(
            f"the privacy account needs clients that take part independently and a fixed denominator, not sampling "
            f"{method.sampling.name!r}: use sampling='poisson'"
        )
    if method.weighting is None or method.weighting.name != "uniform":
        raise ValueError(
            "a client with a large weight changes the sum by more than the clipped norm: use weighting='uniform' with "
            "noise at the server"
        )
    if len(method.phases) > 1:
        raise ValueError(
            f"{name} has {len(method.phases)} phases per round, and the privacy account knows rounds with one sum: use "
            "a method with one phase, e.g. fedopt"
        )


def privacy_of(method: Any, clients: int, cohort: int) -> Callable[[int], float] | None:
    """rounds → ε that the method has spent; None for a method that adds no noise."""
    return privacy_spent(method.upload.privacy, method.sampling, clients, cohort, len(method.phases))
