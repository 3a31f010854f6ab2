"""Named methods: one file per family. A new method is a file here, and its row in the list below."""

from fedtrue.algorithm.method import fedopt
from fedtrue.algorithm.methods.adaalter import adaalter
from fedtrue.algorithm.methods.delta_sgd import delta_sgd
from fedtrue.algorithm.methods.fadamgc import fadamgc
from fedtrue.algorithm.methods.fedada2 import fedada2
from fedtrue.algorithm.methods.fedadamw import fedadamw
from fedtrue.algorithm.methods.fedavg import fedadagrad, fedadam, fedavg, fedavgm, fedyogi
from fedtrue.algorithm.methods.feddane import feddane
from fedtrue.algorithm.methods.feddyn import feddyn
from fedtrue.algorithm.methods.fedexp import fedexp
from fedtrue.algorithm.methods.fedlada import fedlada
from fedtrue.algorithm.methods.fednova import fednova
from fedtrue.algorithm.methods.fedpd import fedpd
from fedtrue.algorithm.methods.fedprox import fedprox
from fedtrue.algorithm.methods.fedsplit import fedsplit
from fedtrue.algorithm.methods.mime import mime
from fedtrue.algorithm.methods.mimelite import mimelite
from fedtrue.algorithm.methods.moments import moments
from fedtrue.algorithm.methods.scaffold import scaffold
from fedtrue.algorithm.methods.slowmo import slowmo
from fedtrue.algorithm.methods.sync_momentum import sync_momentum
from fedtrue.spec import FACTORIES

METHODS = FACTORIES["method"]

__all__ = [
    "METHODS",
    "adaalter",
    "delta_sgd",
    "fadamgc",
    "fedada2",
    "fedadagrad",
    "fedadam",
    "fedadamw",
    "fedavg",
    "fedavgm",
    "feddane",
    "feddyn",
    "fedexp",
    "fedlada",
    "fednova",
    "fedopt",
    "fedpd",
    "fedprox",
    "fedsplit",
    "fedyogi",
    "mime",
    "mimelite",
    "moments",
    "scaffold",
    "slowmo",
    "sync_momentum",
]
