"""Recurrent networks: products that do not need the carry are computed outside the loop, for all its steps at once.

The body of a scan is split into three parts:

    before   products of the inputs with a constant:          one product for all steps, before the loop
    loop     what the carry needs
    after    products of what the loop computed with a constant, and sums over the steps of products: one product each

For an LSTM these are x·W, the recurrent part, and the gradients of x and of both weight matrices.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import ClosedJaxpr, Literal

MAX_BYTES = 2**28  # that the stacked results of the products may take

CONSTANT, INPUT, CARRY = range(3)  # what a value depends on, at most
LINEAR = (
    "transpose",
    "reshape",
    "squeeze",
    "split",
    "slice",
    "rev",
    "neg",
    "reduce_sum",
)  # of one array: commute with sums
CALLS = ("jit", "pjit", "closed_call", "core_call")


class Body(NamedTuple):
    """The body of a scan, without calls, and the numbers of its kinds of arguments."""

    jaxpr: Any
    constants: Sequence[Any]  # values of jaxpr.constvars
    consts: int
    carries: int

    @property
    def carry_in(self) -> list[Any]:
        return self.jaxpr.invars[self.consts : self.consts + self.carries]

    @property
    def inputs(self) -> list[Any]:
        return self.jaxpr.invars[self.consts + self.carries :]

    @property
    def carry_out(self) -> list[Any]:
        return self.jaxpr.outvars[: self.carries]


class Split(NamedTuple):
    """Equations of the body, by where they are evaluated."""

    once: list[Any]  # of constants only
    before: list[Any]
    loop: list[Any]
    after: list[Any]
    sums: dict[int, Any]  # carry → the value, computed after the loop, that every step adds to it


def has_work_outside(avals: Sequence[Any], params: Mapping[str, Any]) -> bool:
    """A recurrence with products that can leave its loop."""
    if params["jaxpr"].effects or params["length"] < 2:
        return False
    body = _body(params)
    split = _split(body, params["length"])
    return bool(split and (split.before or split.after))


def with_work_outside(*operands: Array, **params: Any) -> list[Array]:
    """The same scan in three parts."""
    length, body = params["length"], _body(params)
    split = _split(body, length)
    assert split is not None
    consts, carry, inputs = _arguments(body, operands)
    known = _evaluated(split.once, dict(zip([*body.jaxpr.constvars, *body.jaxpr.invars], [*body.constants, *consts])))
    stacked = dict(zip(body.inputs, inputs))
    stacked |= _over_time(split.before, known, stacked, _read(split.loop, split.after, body.jaxpr.outvars))
    kept = [i for i in range(body.carries) if i not in split.sums]
    needed_after = [v for v in _read(split.after) if v not in known and v not in stacked]
    made_after = set(_written(split.after))
    outputs = [v for v in body.jaxpr.outvars[body.carries :] if not _is_in(v, made_after)]
    emitted = list(dict.fromkeys([*needed_after, *(v for v in outputs if not isinstance(v, Literal))]))

    def step(carry: Sequence[Array], row: Mapping[Any, Array]) -> Any:
        values = {**known, **row, **dict(zip([body.carry_in[i] for i in kept], carry))}
        values = _evaluated(split.loop, values)
        return [_value(body.carry_out[i], values) for i in kept], {v: values[v] for v in emitted}

    rows = {v: stacked[v] for v in _read(split.loop, outputs, [body.carry_out[i] for i in kept]) if v in stacked}
    final, made = _scan(step, [carry[i] for i in kept], rows, params)
    stacked |= made
    results = dict(zip(kept, final))
    totals: dict[Any, Array] = {}
    for i, added in split.sums.items():
        totals |= _summed(added, split.after, known, stacked, totals)
        results[i] = carry[i] + totals[added]
    stacked |= _over_time(
        split.after, known, stacked, [v for v in body.jaxpr.outvars[body.carries :] if _is_in(v, made_after)]
    )
    ys = [_stacked_value(v, known, stacked, length) for v in body.jaxpr.outvars[body.carries :]]
    return [*(results[i] for i in range(body.carries)), *ys]


def _scan(step: Any, carry: Any, rows: Mapping[Any, Array], params: Mapping[str, Any]) -> tuple[Any, dict[Any, Array]]:
    """A scan over dicts whose keys are variables, which have no order that trees could use."""
    names: list[Any] = []

    def flat_step(carry: Any, values: Sequence[Array]) -> Any:
        carry, made = step(carry, dict(zip(rows, values)))
        names[:] = made
        return carry, list(made.values())

    final, made = lax.scan(
        flat_step, carry, list(rows.values()), params["length"], reverse=params["reverse"], unroll=params["unroll"]
    )
    return final, dict(zip(names, made))


def _body(params: Mapping[str, Any]) -> Body:
    jaxpr = params["jaxpr"]
    if "num_consts" in params:
        consts, carries = params["num_consts"], params["num_carry"]
    else:  # from JAX 0.11 on
        consts, carries, _ = (len(list(part)) for part in params["ft_in"].unpack())
    inlined = jax.make_jaxpr(partial(_without_calls, jaxpr))(*jaxpr.in_avals)
    return Body(inlined.jaxpr, inlined.consts, consts, carries)


def _without_calls(closed: ClosedJaxpr, *arguments: Any) -> list[Any]:
    """The closed jaxpr evaluated, with the bodies of calls in their place."""
    jaxpr = closed.jaxpr
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*closed.consts, *arguments]))
    for equation in jaxpr.eqns:
        if equation.primitive.name in CALLS:
            called = equation.params.get("jaxpr") or equation.params["call_jaxpr"]
            results = _without_calls(called, *(_value(v, values) for v in equation.invars))
            values.update(zip(equation.outvars, results))
        else:
            values = _evaluated([equation], values)
    return [_value(v, values) for v in jaxpr.outvars]


def _arguments(body: Body, operands: Sequence[Array]) -> tuple[Sequence[Array], Sequence[Array], Sequence[Array]]:
    first_input = body.consts + body.carries
    return operands[: body.consts], operands[body.consts : first_input], operands[first_input:]


# --- where each equation is evaluated --------------------------------------------------------------------------------


def _split(body: Body, length: int) -> Split | None:
    """None: not a recurrence, or too large."""
    jaxpr, level = body.jaxpr, _levels(body)
    sums = _sums(body)
    core = _ancestors(jaxpr.eqns, [v for i, v in enumerate(body.carry_out) if i not in sums])
    if not any(v.aval.ndim and level[v] == CARRY for equation in core for v in equation.outvars):
        return None
    before = [e for e in jaxpr.eqns if _is_shared_product(e, level) and level[e.outvars[0]] == INPUT]
    added = {id(_product_of(v, jaxpr.eqns)) for v in sums.values()}
    late = [
        e
        for e in _without(jaxpr.eqns, core)
        if level[e.outvars[0]] == CARRY and (id(e) in added or _is_shared_product(e, level))
    ]
    after = _descendants(jaxpr.eqns, late)
    sums = {i: v for i, v in sums.items() if _is_in(v, _written(after))}
    after = _without(after, [e for i in sums for e in jaxpr.eqns if _is_in(body.carry_out[i], e.outvars)])
    if any(_is_in(v, _written(after)) for v in body.carry_out):
        return None
    before = _ancestors(jaxpr.eqns, [v for e in before for v in e.outvars])
    before = [e for e in before if level[e.outvars[0]] == INPUT]
    once = [e for e in jaxpr.eqns if level[e.outvars[0]] == CONSTANT]
    gone = [*once, *before, *after, *(e for i in sums for e in jaxpr.eqns if _is_in(body.carry_out[i], e.outvars))]
    loop = _without(jaxpr.eqns, gone)
    stacked = _read(after, body.jaxpr.outvars[body.carries :])
    if length * sum(_bytes(v.aval) for v in dict.fromkeys([*_written(before), *stacked])) > MAX_BYTES:
        return None
    return Split(once, before, loop, after, sums)


def _levels(body: Body) -> dict[Any, int]:
    """What each value depends on."""
    jaxpr = body.jaxpr
    level = dict.fromkeys([*jaxpr.constvars, *jaxpr.invars], CONSTANT)
    level |= dict.fromkeys(body.carry_in, CARRY) | dict.fromkeys(body.inputs, INPUT)
    for equation in jaxpr.eqns:
        highest = max((level[v] for v in equation.invars if not isinstance(v, Literal)), default=CONSTANT)
        level |= dict.fromkeys(equation.outvars, highest)
    return level


def _sums(body: Body) -> dict[int, Any]:
    """Carries that nothing reads, to which every step adds a value: carry → that value."""
    uses: dict[Any, int] = {}
    for v in [*(v for e in body.jaxpr.eqns for v in e.invars), *body.jaxpr.outvars]:
        if not isinstance(v, Literal):
            uses[v] = uses.get(v, 0) + 1
    found = {}
    for i, (before, after) in enumerate(zip(body.carry_in, body.carry_out)):
        for equation in body.jaxpr.eqns:
            is_addition = equation.primitive.name in ("add", "add_any") and _is_in(after, equation.outvars)
            if is_addition and _is_in(before, equation.invars) and uses[before] == uses[after] == 1:
                first, second = equation.invars
                found[i] = second if first is before else first
    return {i: v for i, v in found.items() if not isinstance(v, Literal)}


def _is_shared_product(equation: Any, level: Mapping[Any, int]) -> bool:
    """A product with a constant matrix: as one product for all steps it has more rows, and takes less time."""
    if equation.primitive is not lax.dot_general_p:
        return False
    levels = sorted(CONSTANT if isinstance(v, Literal) else level[v] for v in equation.invars)
    return levels[0] == CONSTANT and levels[1] > CONSTANT


def _product_of(value: Any, equations: Sequence[Any]) -> Any:
    """The product of which this value is a linear function; else None."""
    equation = _source(value, equations)
    if equation is not None and equation.primitive.name in LINEAR:
        return _product_of(equation.invars[0], equations)
    return equation if equation is not None and equation.primitive is lax.dot_general_p else None


def _source(value: Any, equations: Sequence[Any]) -> Any:
    """The equation that computes a value; None: another's."""
    return next((equation for equation in equations if _is_in(value, equation.outvars)), None)


def _ancestors(equations: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """The equations that these values need."""
    wanted, found = {v for v in values if not isinstance(v, Literal)}, []
    for equation in reversed(equations):
        if wanted.intersection(equation.outvars):
            found.append(equation)
            wanted.update(v for v in equation.invars if not isinstance(v, Literal))
    return found[::-1]


def _descendants(equations: Sequence[Any], first: Sequence[Any]) -> list[Any]:
    """These equations and all that need them."""
    made, found = set[Any](), list[Any]()
    for equation in equations:
        if any(equation is other for other in first) or any(_is_in(v, made) for v in equation.invars):
            made.update(equation.outvars)
            found.append(equation)
    return found


def _without(equations: Sequence[Any], removed: Sequence[Any]) -> list[Any]:
    gone = {id(equation) for equation in removed}
    return [equation for equation in equations if id(equation) not in gone]


def _read(*groups: Sequence[Any]) -> list[Any]:
    """The variables that these equations read, but do not compute, and these variables."""
    read, written = list[Any](), set[Any]()
    for item in (item for group in groups for item in group):
        variables = item.invars if hasattr(item, "invars") else [item]
        read += [v for v in variables if not isinstance(v, Literal) and v not in written]
        written.update(getattr(item, "outvars", ()))
    return list(dict.fromkeys(read))


def _written(equations: Sequence[Any]) -> list[Any]:
    return [v for equation in equations for v in equation.outvars]


def _is_in(variable: Any, variables: Any) -> bool:
    return not isinstance(variable, Literal) and any(variable is other for other in variables)


def _bytes(aval: Any) -> int:
    return math.prod(aval.shape) * aval.dtype.itemsize


# --- evaluation ------------------------------------------------------------------------------------------------------


def _value(variable: Any, values: Mapping[Any, Any]) -> Any:
    return variable.val if isinstance(variable, Literal) else values[variable]


def _evaluated(equations: Sequence[Any], values: Mapping[Any, Any]) -> dict[Any, Any]:
    """The values, and those of the equations."""
    found = dict(values)
    for equation in equations:
        operands = [_value(v, found) for v in equation.invars]
        params = equation.primitive.get_bind_params(equation.params)
        functions, params = params if isinstance(params, tuple) else ((), params)  # a pair before JAX 0.10
        with equation.ctx.manager:
            results = equation.primitive.bind(*functions, *operands, **params)
        found.update(zip(equation.outvars, results if equation.primitive.multiple_results else [results]))
    return found


def _over_time(
    equations: Sequence[Any], known: Mapping[Any, Any], stacked: Mapping[Any, Array], wanted: Sequence[Any]
) -> dict[Any, Array]:
    """The wanted values of the equations, for all steps."""
    own = set(_written(equations))
    wanted = [v for v in dict.fromkeys(wanted) if _is_in(v, own)]
    equations = _ancestors(equations, wanted)
    if not wanted:
        return {}
    rows = [v for v in _read(equations) if v in stacked]

    def at_one_step(row: Sequence[Array]) -> list[Array]:
        values = _evaluated(equations, {**known, **dict(zip(rows, row))})
        return [values[v] for v in wanted]

    return dict(zip(wanted, jax.vmap(at_one_step)([stacked[v] for v in rows])))


def _summed(
    value: Any,
    equations: Sequence[Any],
    known: Mapping[Any, Any],
    stacked: Mapping[Any, Array],
    totals: Mapping[Any, Array],
) -> dict[Any, Array]:
    """The totals, and Σ over the steps of this value. Of a product it is one product, which sums over the steps too."""
    equation = _source(value, equations)
    if value in totals:
        return dict(totals)
    if equation is not None and equation.primitive.name in LINEAR:
        return _evaluated([equation], _summed(equation.invars[0], equations, known, stacked, totals))
    is_product = equation is not None and equation.primitive is lax.dot_general_p
    if is_product and not any(isinstance(v, Literal) or v in known for v in equation.invars):
        factors = {**stacked, **_over_time(equations, known, stacked, equation.invars)}
        total = _product_over_time(*(factors[v] for v in equation.invars), **equation.params)
    else:
        total = jnp.sum({**stacked, **_over_time(equations, known, stacked, [value])}[value], axis=0)
    return {**totals, value: total}


def _product_over_time(left: Array, right: Array, *, dimension_numbers: Any, **params: Any) -> Array:
    (left_summed, right_summed), (left_batch, right_batch) = dimension_numbers
    later = lambda axes: tuple(axis + 1 for axis in axes)
    summed = (0, *later(left_summed)), (0, *later(right_summed))
    return lax.dot_general_p.bind(
        left, right, dimension_numbers=(summed, (later(left_batch), later(right_batch))), **params
    )


def _stacked_value(variable: Any, known: Mapping[Any, Any], stacked: Mapping[Any, Array], length: int) -> Array:
    if not isinstance(variable, Literal) and variable in stacked:
        return stacked[variable]
    value = jnp.asarray(_value(variable, known), variable.aval.dtype)
    return jnp.broadcast_to(value, (length, *value.shape))
