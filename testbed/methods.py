"""The ways to bring a context to the inference host: which encodings are stored, and who chooses among them."""

from dataclasses import dataclass

from cachegen import ENCODINGS, UnknownNameError


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
    """

    name: str
    encodings: tuple[str, ...]
    controller: str


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
    """Return the method of that name.

    Raises
    ------
    UnknownNameError
        There is none; the text lists those there are.
    """
    if name not in METHODS:
        raise UnknownNameError(f"no method {name!r}; there are {', '.join(METHODS)}")
    return METHODS[name]
