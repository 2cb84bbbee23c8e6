"""The time of recomputation, which a controller's predictions rest on: a function of prefix and length."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from cachegen.errors import InvalidInputError

# Three years. Who predicts as much says that it cannot be done: a reduced context has no text of its own.
IMPOSSIBLE_S = 1e8
_NUM_TERMS = 3


@dataclass(frozen=True)
class RecomputeCost:
    """Time to prefill ``n`` tokens behind a prefix of ``p`` tokens: ``a + b * n + c * n * (p + n / 2)``.

    The second term is what every token costs. The third is attention: each new token looks at the prefix and,
    on average, at half of the new ones.

    Parameters
    ----------
    call_s, token_s, attention_s
        The coefficients a, b and c, in seconds; none is negative.
    """

    call_s: float
    token_s: float
    attention_s: float

    @classmethod
    def fit(cls, measurements: Iterable[tuple[int, int, float]]) -> "RecomputeCost":
        """Fit the coefficients to measured prefills, by least squares without negative ones.

        Parameters
        ----------
        measurements
            Triples (tokens of the prefix, tokens prefilled, seconds), at least three.

        Raises
        ------
        InvalidInputError
            Too few measurements, a time that is not positive, or measurements that cannot tell the three
            terms apart: both the prefix and the number of tokens have to vary.
        """
        rows = list(measurements)
        if len(rows) < _NUM_TERMS:
            raise InvalidInputError(f"{len(rows)} measurements of recomputation, {_NUM_TERMS} are needed")
        for place, (prefix_tokens, num_tokens, seconds) in enumerate(rows):
            _check_tokens(f"measurement {place}", prefix_tokens, num_tokens)
            if not 0 < seconds < math.inf:
                raise InvalidInputError(f"measurement {place} of recomputation took {seconds} s")
        terms = np.array([_terms(prefix_tokens, num_tokens) for prefix_tokens, num_tokens, _ in rows])
        # Scaled to equal heights: attention's term is a million times the first.
        scales = terms.max(axis=0)
        if np.linalg.matrix_rank(terms / scales) < _NUM_TERMS:
            raise InvalidInputError(f"{len(rows)} measurements cannot tell the terms apart: vary prefix and length")
        target_s = np.array([seconds for _, _, seconds in rows])
        call_s, token_s, attention_s = _non_negative_least_squares(terms / scales, target_s) / scales
        return cls(float(call_s), float(token_s), float(attention_s))

    def predict(self, prefix_tokens: int, num_tokens: int) -> float:
        """Return the seconds to prefill ``num_tokens`` tokens behind ``prefix_tokens`` tokens.

        Raises
        ------
        InvalidInputError
            A negative prefix, or no tokens.
        """
        _check_tokens("predict", prefix_tokens, num_tokens)
        terms = _terms(prefix_tokens, num_tokens)
        return float(np.dot(terms, (self.call_s, self.token_s, self.attention_s)))


def _terms(prefix_tokens: int, num_tokens: int) -> tuple[float, float, float]:
    return 1.0, float(num_tokens), num_tokens * (prefix_tokens + num_tokens / 2)


def _check_tokens(place: str, prefix_tokens: int, num_tokens: int) -> None:
    if prefix_tokens < 0 or num_tokens < 1:
        raise InvalidInputError(f"{place}: {num_tokens} tokens behind {prefix_tokens} cannot be prefilled")


def _non_negative_least_squares(
    matrix: npt.NDArray[np.float64], target: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the non-negative ``x`` that minimises ``|matrix x - target|``, by trying every set of columns.

    The optimum is the unconstrained one over the columns in which it is positive, and three columns have
    seven sets. Some set always qualifies, since terms and times are positive: one column alone does.
    """
    num_columns = matrix.shape[1]
    best, best_error = np.zeros(num_columns), math.inf
    for size in range(1, num_columns + 1):
        for columns in map(list, combinations(range(num_columns), size)):
            solution, *_ = np.linalg.lstsq(matrix[:, columns], target, rcond=None)
            error = float(np.linalg.norm(matrix[:, columns] @ solution - target))
            if solution.min() >= 0 and error < best_error:
                best, best_error = np.zeros(num_columns), error
                best[columns] = solution
    return best
