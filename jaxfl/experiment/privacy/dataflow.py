"""Uploads and local trainings, marked in a traced program; and what the program does with data.

A mark is a primitive of JAX, so that it stays where it is under `jit`, `vmap`, `scan` and `cond`.
Nothing is computed: a program with marks can be traced, not run.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Primitive
from jax.interpreters import ad, batching
from jaxtyping import PyTree

from jaxfl.core.errors import InputError

MARK = Primitive("audit_mark")
MARK.multiple_results = True


class Mark(NamedTuple):
    """A mark in a program: an upload or a training of one client."""

    label: Any  # of `mark`
    times: int  # how often it happens


class Flow(NamedTuple):
    """What depends on the inputs of a program that are followed."""

    outputs: list[bool]
    learned: bool  # something that the server learns by a mark


def mark(label: Any, learned: PyTree, outputs: PyTree) -> PyTree:
    """Marks an upload or a training, whose results depend on nothing.

    Args:
      label: hashable, tells what it is.
      learned: arrays that the server learns by it.
      outputs: the shapes of the results.
    """
    leaves, structure = jax.tree.flatten(outputs)
    shapes = tuple((tuple(x.shape), x.dtype) for x in leaves)
    results = MARK.bind(*jax.tree.leaves(learned), label=label, shapes=shapes, batch=(), clean=True)
    return structure.unflatten(results)


def mark_passing(label: Any, values: PyTree) -> PyTree:
    """Marks a place through which the values pass unchanged."""
    leaves, structure = jax.tree.flatten(values)
    shapes = tuple((tuple(jnp.shape(x)), jnp.result_type(x)) for x in leaves)
    results = MARK.bind(*leaves, label=label, shapes=shapes, batch=(), clean=False)
    return structure.unflatten(results)


def traced_call(function: Callable, *arguments: PyTree) -> tuple[list, PyTree]:
    """What a function uses beside its arguments, and the shapes of its results.

    An objective of local training may use arrays of the round that are not in its anchor.
    """
    program, results = jax.make_jaxpr(function, return_shape=True)(*arguments)
    return list(program.consts), results


@MARK.def_abstract_eval
def _shapes_of_mark(*arguments: Any, shapes: tuple, **_: Any) -> list[ShapedArray]:
    return [ShapedArray(shape, dtype) for shape, dtype in shapes]


def _batch_mark(
    arguments: Sequence, axes: Sequence, *, label: Any, shapes: tuple, batch: tuple, clean: bool
) -> tuple[list, list[int]]:
    """The mark under `vmap`: the same once for each of the vmapped."""
    pairs = list(zip(arguments, axes, strict=True))
    size = next(x.shape[axis] for x, axis in pairs if axis is not None)
    front = [
        jnp.broadcast_to(x, (size, *jnp.shape(x))) if axis is None else jnp.moveaxis(x, axis, 0)
        for x, axis in pairs
    ]
    shapes = tuple(((size, *shape), dtype) for shape, dtype in shapes)
    results = MARK.bind(*front, label=label, shapes=shapes, batch=(size, *batch), clean=clean)
    return results, [0] * len(results)


def _differentiate_mark(primals: Sequence, tangents: Sequence, *, clean: bool, **params: Any):
    if clean:
        raise InputError(
            "the privacy of the method cannot be followed: it takes a gradient through an upload "
            "or through noised training; leave out clipping and noise"
        )
    return MARK.bind(*primals, clean=clean, **params), list(tangents)


batching.primitive_batchers[MARK] = _batch_mark
ad.primitive_jvps[MARK] = _differentiate_mark


def find_marks(program: Jaxpr) -> list[Mark]:
    """All marks of a program, with the number of times that they happen.

    Of the branches of a condition, all marks of the one with the most count.

    Raises:
      InputError: a mark in a loop whose number of turns is unknown.
    """
    marks = []
    for step in program.eqns:
        name = step.primitive.name
        if step.primitive is MARK:
            marks.append(Mark(step.params["label"], math.prod(step.params["batch"])))
        elif name == "scan":
            inside = find_marks(step.params["jaxpr"].jaxpr)
            marks += [mark._replace(times=mark.times * step.params["length"]) for mark in inside]
        elif name == "cond":
            branches = [find_marks(branch.jaxpr) for branch in step.params["branches"]]
            marks += max(branches, key=lambda branch: sum(mark.times for mark in branch))
        else:
            inside = [mark for body in _programs(step) for mark in find_marks(body)]
            if inside and name == "while":
                raise InputError(
                    "the privacy of the method cannot be followed: it trains or uploads in a loop "
                    "whose number of turns is unknown; write it as lax.scan, or leave out clipping "
                    "and noise"
                )
            marks += inside
    return marks


def follow(program: Jaxpr, inputs: Sequence[bool]) -> Flow:
    """What depends on some inputs of a program.

    An answer of False can be relied on, the other errs on the safe side.

    Args:
      program: with marks.
      inputs: which of its inputs are followed.
    """
    dependents = {x for x, flag in zip(program.invars, inputs, strict=True) if flag}
    learned = False

    def flags(variables: Sequence) -> list[bool]:
        return [not isinstance(x, Literal) and x in dependents for x in variables]

    for step in program.eqns:
        flow = _follow_step(step, flags(step.invars))
        learned |= flow.learned
        dependents.update(x for x, hit in zip(step.outvars, flow.outputs, strict=True) if hit)
    return Flow(flags(program.outvars), learned)


def _follow_step(step: JaxprEqn, inputs: list[bool]) -> Flow:
    name, params = step.primitive.name, step.params
    everything = [any(inputs)] * len(step.outvars)
    if step.primitive is MARK:
        if params["clean"]:
            return Flow([False] * len(step.outvars), any(inputs))
        return Flow(inputs, False)
    bodies = list(_programs(step))
    if not bodies or not any(inputs):
        return Flow(everything, False)
    if name == "scan":
        return _follow_scan(step, inputs)
    if name == "while":
        return _follow_while(step, inputs)
    if name == "cond":
        which, *rest = inputs
        flows = [follow(body, rest) for body in bodies]
        outputs = [which or any(hits) for hits in zip(*(f.outputs for f in flows), strict=True)]
        # Whether something is uploaded may tell as much as what.
        leak = which and any(find_marks(body) for body in bodies)
        return Flow(outputs, leak or any(flow.learned for flow in flows))
    (body, *more) = bodies
    if not more and len(body.invars) == len(inputs) and len(body.outvars) == len(everything):
        return follow(body, inputs)
    return Flow(everything, any(find_marks(body) for body in bodies))


def _follow_scan(step: JaxprEqn, inputs: list[bool]) -> Flow:
    body = step.params["jaxpr"].jaxpr
    first = step.params["num_consts"]
    last = first + step.params["num_carry"]
    while True:
        flow = follow(body, inputs)
        carry = flow.outputs[: last - first]
        union = [a or b for a, b in zip(inputs[first:last], carry, strict=True)]
        if union == inputs[first:last]:
            return flow._replace(outputs=union + flow.outputs[last - first :])
        inputs = inputs[:first] + union + inputs[last:]


def _follow_while(step: JaxprEqn, inputs: list[bool]) -> Flow:
    of_condition = step.params["cond_nconsts"]
    constants = of_condition + step.params["body_nconsts"]
    carry = inputs[constants:]
    while True:
        condition = follow(step.params["cond_jaxpr"].jaxpr, inputs[:of_condition] + carry)
        flow = follow(step.params["body_jaxpr"].jaxpr, inputs[of_condition:constants] + carry)
        turns = any(condition.outputs)
        union = [a or b or turns for a, b in zip(carry, flow.outputs, strict=True)]
        if union == carry:
            return Flow(carry, flow.learned or condition.learned)
        carry = union


def _programs(step: JaxprEqn) -> Iterator[Jaxpr]:
    """The programs inside a step: the body of a loop, branches, what is compiled apart."""
    for value in step.params.values():
        for program in value if isinstance(value, tuple | list) else (value,):
            if isinstance(program, ClosedJaxpr):
                yield program.jaxpr
            elif isinstance(program, Jaxpr):
                yield program
