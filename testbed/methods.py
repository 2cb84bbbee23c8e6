"""The ways to bring a context to the inference host: which encodings are stored, and who chooses among them."""

from dataclasses import dataclass, replace

from cachegen import ENCODINGS, InvalidInputError, UnknownNameError, make_controller
from testbed.reductions import REDUCTIONS, parse_reduction

# What a reduced context is stored as where its name says no more: as in the paper, whose baselines are at 8 bits.
_PLAIN = "quant8"


def _ladder(codec: str) -> tuple[str, ...]:
    return tuple(str(encoding) for encoding in ENCODINGS if encoding.codec == codec)


@dataclass(frozen=True)
class Method:
    """One row of the comparison.

    Parameters
    ----------
    name : str
        In reports.
    encodings : tuple of str
        That the controller may choose from, finest first.
    controller : str
        Spec for ``cachegen.make_controller``.
    reduction : str
        What is done to the context first, see ``testbed.reductions``; empty: nothing.
    """

    name: str
    encodings: tuple[str, ...]
    controller: str
    reduction: str = ""


METHODS: dict[str, Method] = {
    # no KV travels: the text does, and the prefill is run again
    "text": Method("text", (), "text"),
    # the paper: a level for each chunk, or recomputation, by Algorithm 1
    "cachegen": Method("cachegen", _ladder("cachegen"), "paper"),
    # the same over the levels of the published code
    "cachegen-repo": Method("cachegen-repo", _ladder("cachegen-repo"), "paper"),
    # the same over the levels of this project's own codec
    "transform": Method("transform", _ladder("transform"), "paper"),
    # recomputation and streaming towards each other, and the same by one who knows what the link will do
    **{
        f"{codec}-{controller}": Method(f"{codec}-{controller}", _ladder(codec), controller)
        for codec in ("cachegen", "transform")
        for controller in ("meet", "oracle")
    },
    # one encoding throughout: raw, quant8, cachegen-0, transform-0 ...
    **{str(encoding): Method(str(encoding), (str(encoding),), f"fixed:{encoding}") for encoding in ENCODINGS},
}


def make_method(name: str) -> Method:
    """Return the method of that name: one of ``METHODS``, one with an argument for its controller,
    ``transform-meet:0``, or one behind a reduction, ``h2o-50+cachegen``.

    Raises
    ------
    UnknownNameError
        There is none; the text lists those there are.
    InvalidInputError
        The method needs a text, and the reduction leaves none; or its controller takes no such argument.
    """
    first, plus, rest = name.partition("+")
    spec = parse_reduction(first)
    base, colon, argument = (name if spec is None else rest if plus else _PLAIN).partition(":")
    if base not in METHODS:
        behind = ", ".join(f"{kind}-50+METHOD" for kind in REDUCTIONS)
        raise UnknownNameError(f"no method {name!r}; there are {', '.join(METHODS)}; and {behind}, of 1 to 99 %")
    method = replace(METHODS[base], name=name)
    if colon:
        method = replace(method, controller=f"{method.controller}:{argument}")
        make_controller(method.controller, method.encodings)
    if spec is None:
        return method
    method = replace(method, reduction=first)
    if not (method.encodings or spec.reduction.has_text):
        raise InvalidInputError(f"method {name}: {first} leaves no text that could be recomputed")
    return method
