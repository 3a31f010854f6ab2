"""Models of other libraries as two pure functions of a batch: `init(key) → weights`, `apply(weights, inputs, key)`.

    library     how it is told that it trains                        randomness in training
    flax.linen  an argument of __call__ or a field of the module,    rngs: `dropout`, and one for all other names
                called as in `calls.MODE_NAMES` (train, deterministic …)
    flax.nnx    `.train()` and `.eval()`; such an argument too       every stream of the module is reseeded
    equinox     `equinox.nn.inference_mode`; such an argument too    `key=`, one per example, if __call__ takes it
    haiku       such an argument of the transformed function         `rng`
    a pair      such an argument of `apply`                          `key`, if `apply` takes it

In evaluation `key` is None, and a model that draws random numbers is refused. All but equinox's modules, which describe
one example and are vectorised here, get the whole batch at once. A library is imported only if the model comes from it.
"""

import dataclasses
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.models.calls import MODE_NAMES, mode_arguments, mode_name, parameters_of, with_key
from fedtrue.models.named_leaves import with_leaves
from fedtrue.models.trained_subset import refuse_state
from fedtrue.types import Array, PyTree

Inputs = tuple[Any, ...]


class Network(NamedTuple):
    """A model as pure functions."""

    init: Callable[[Array], PyTree]  # key → weights
    apply: Callable[
        [PyTree, Inputs, Array | None], Any
    ]  # (weights, inputs of a batch, key) → outputs; None: evaluation


class Library(NamedTuple):
    """How the models of one library are used."""

    network: Callable[[Any, Inputs], Network]  # (model, inputs of one example) → network
    weights: Callable[[Any], PyTree]  # model → the weights it holds
    with_weights: Callable[[Any, PyTree], Any]  # (model, weights) → a model with these weights


def adapt(model: Any, inputs: Inputs) -> Network:
    """The model as pure functions; `inputs` are those of a batch of one example."""
    if library := library_of(model):
        return library.network(model, inputs)
    if isinstance(model, tuple | list) and len(model) == 2 and all(map(callable, model)):
        return _pair(model)
    if isinstance(model, type):
        raise ValueError(f"the model is the class {model.__name__}: give an instance, {model.__name__}(…)")
    raise ValueError(
        f"the model is a {type(model).__module__}.{type(model).__name__}: give a flax.linen, flax.nnx or equinox "
        "module, a haiku transform, or a pair (init, apply)"
    )


def library_of(model: Any) -> Library | None:
    """By the model's class; a library that is not imported cannot have made it."""
    for (module, name), library in LIBRARIES.items():
        if module in sys.modules and isinstance(model, getattr(sys.modules[module], name)):
            return library
    return None


def _linen(model: Any, inputs: Inputs) -> Network:
    call = type(model).__call__
    fields = [] if mode_name(parameters_of(call)) else [field.name for field in dataclasses.fields(model)]
    field = mode_name(fields)

    def in_mode(training: bool) -> tuple[Any, dict[str, bool]]:
        chosen = model if field is None else model.clone(**{field: MODE_NAMES[field] == training})
        return chosen, mode_arguments(call, training)

    def init(key: Array) -> PyTree:
        module, arguments = in_mode(training=False)
        variables = module.init(key, *inputs, **arguments)
        if others := sorted(set(variables) - {"params"}):
            refuse_state(f"flax collection {others[0]!r}")
        return variables.get("params", {})

    def apply(weights: PyTree, inputs: Inputs, key: Array | None) -> Any:
        module, arguments = in_mode(training=key is not None)
        rngs = None if key is None else {"dropout": key, "params": jax.random.fold_in(key, 1)}  # flax's default stream
        return module.apply({"params": weights}, *inputs, rngs=rngs, **arguments)

    return Network(init, apply)


def _nnx(model: Any, inputs: Inputs) -> Network:
    from flax import nnx

    def split(module: Any) -> Any:
        return nnx.split(module, nnx.Param, nnx.RngState, ...)

    copy = nnx.clone(model)
    copy.train()
    training, *_ = split(copy)
    copy.eval()
    evaluating, params, streams, others = split(copy)
    if any(isinstance(variable, nnx.BatchStat) for _, variable in nnx.to_flat_state(others)):
        refuse_state("nnx.BatchStat")

    def apply(weights: PyTree, inputs: Inputs, key: Array | None) -> Any:
        state, random, constants = jax.tree.map(lambda leaf: leaf, (params, streams, others))  # new variables
        nnx.replace_by_pure_dict(state, weights)
        graph, random = (evaluating, random) if key is None else (training, _reseeded(random, key))
        module = nnx.merge(graph, state, random, constants)
        outputs = module(*inputs, **mode_arguments(type(model).__call__, key is not None))
        _, _, streams_after, others_after = split(module)
        if _changed(others, others_after):
            refuse_state("a variable that its __call__ changes")
        if key is None and _changed(streams, streams_after):
            raise ValueError("it draws random numbers after .eval()")
        return outputs

    return Network(lambda key: nnx.to_pure_dict(params), apply)


def _changed(before: PyTree, after: PyTree) -> bool:
    """Whether a call assigned to a variable: then its array, traced or not, is another object."""
    return any(old is not new for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after)))


def _reseeded(streams: PyTree, key: Array) -> PyTree:
    """nnx's random streams, the keys derived from `key` and all counts 0."""
    leaves, structure = jax.tree.flatten(streams)
    is_key = lambda leaf: jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    fresh = [
        jax.random.fold_in(key, number) if is_key(leaf) else jnp.zeros_like(leaf) for number, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(structure, fresh)


def _nnx_weights(model: Any) -> PyTree:
    from flax import nnx

    return nnx.to_pure_dict(nnx.state(model, nnx.Param))


def _with_nnx_weights(model: Any, weights: PyTree) -> Any:
    from flax import nnx

    graph, state, *others = nnx.split(nnx.clone(model), nnx.Param, ...)
    nnx.replace_by_pure_dict(state, jax.tree.map(jnp.asarray, weights))
    return nnx.merge(graph, state, *others)


def _equinox(model: Any, inputs: Inputs) -> Network:
    import equinox

    is_state = lambda leaf: isinstance(leaf, equinox.nn.StateIndex)
    if any(map(is_state, jax.tree.leaves(model, is_leaf=is_state))):
        refuse_state("equinox.nn.StateIndex")
    weights, training = equinox.partition(equinox.nn.inference_mode(model, False), _is_array)
    evaluating = equinox.partition(equinox.nn.inference_mode(model, True), _is_array)[1]
    call = type(model).__call__
    has_key = "key" in parameters_of(call)

    def apply(weights: PyTree, inputs: Inputs, key: Array | None) -> Any:
        module = equinox.combine(weights, evaluating if key is None else training)
        arguments = mode_arguments(call, key is not None)
        if not has_key:
            return jax.vmap(lambda *example: module(*example, **arguments))(*inputs)
        if key is None:
            return jax.vmap(lambda *example: module(*example, key=None, **arguments))(*inputs)
        keys = jax.random.split(key, len(jax.tree.leaves(inputs)[0]))
        return jax.vmap(lambda own, *example: module(*example, key=own, **arguments))(keys, *inputs)

    return Network(lambda key: weights, apply)


def _is_array(leaf: Any) -> bool:
    """Whether a leaf of an equinox module is a weight; functions, flags and random keys are not."""
    return isinstance(leaf, jax.Array | np.ndarray) and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _equinox_weights(model: Any) -> PyTree:
    import equinox

    return equinox.filter(model, _is_array)


def _with_equinox_weights(model: Any, weights: PyTree) -> Any:
    import equinox

    return equinox.combine(jax.tree.map(jnp.asarray, weights), equinox.filter(model, _is_array, inverse=True))


def _haiku(model: Any, inputs: Inputs) -> Network:
    import haiku

    if isinstance(model, haiku.TransformedWithState):
        refuse_state("hk.transform_with_state (hk.transform is for models without state)")
    draws = "rng" in parameters_of(model.apply)

    def init(key: Array) -> PyTree:
        try:
            return model.init(key, *inputs, **mode_arguments(model.apply, training=True))
        except ValueError as error:
            if "transform_with_state" in str(error):
                refuse_state("hk.set_state")
            raise

    def apply(weights: PyTree, inputs: Inputs, key: Array | None) -> Any:
        rng = (key,) if draws else ()
        return model.apply(weights, *rng, *inputs, **mode_arguments(model.apply, key is not None))

    return Network(init, apply)


def _pair(model: Any) -> Network:
    init, function = model

    def apply(weights: PyTree, inputs: Inputs, key: Array | None) -> Any:
        keyed = with_key(function, 1 + len(inputs))
        return keyed(weights, *inputs, key, **mode_arguments(function, key is not None))

    return Network(init, apply)


def _holds_no_weights(model: Any, *_: Any) -> Any:
    raise ValueError(
        f"a {type(model).__module__.split('.')[0]} {type(model).__name__} holds no weights: "
        "give a tree of weights such as model.init(key, inputs)"
    )


HAIKU = Library(_haiku, _holds_no_weights, _holds_no_weights)
LIBRARIES = {  # (module, class) → how its models are used
    ("flax.linen", "Module"): Library(_linen, _holds_no_weights, _holds_no_weights),
    ("flax.nnx", "Module"): Library(_nnx, _nnx_weights, _with_nnx_weights),
    ("equinox", "Module"): Library(_equinox, _equinox_weights, _with_equinox_weights),
    ("haiku", "Transformed"): HAIKU,
    ("haiku", "TransformedWithState"): HAIKU,
}


def weights_of(model: Any) -> PyTree:
    """The weights in a module that holds them; a tree of weights as it is."""
    library = library_of(model)
    return library.weights(model) if library else model


def with_weights(model: Any, leaves: dict[str, Any], source: str) -> Any:
    """A module or tree like `model` with these weights, by their names."""
    library, weights = library_of(model), weights_of(model)
    like = jax.tree.map(np.asarray, weights)
    filled = with_leaves(like, leaves, source)
    cast = jax.tree.map(lambda new, old: new.astype(old.dtype), filled, like)
    return library.with_weights(model, cast) if library else cast
