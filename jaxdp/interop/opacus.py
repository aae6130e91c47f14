"""An accountant with the interface of Opacus, and the privacy loss of its history."""

from __future__ import annotations

import functools
import importlib
import operator
from collections import OrderedDict
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from jaxdp._core import checks
from jaxdp._core.namespace import xp
from jaxdp._core.threads import Locked
from jaxdp._core.types import ArrayLike
from jaxdp.composition.privacy_loss import PrivacyLoss, privacy_loss
from jaxdp.guarantee.pure import ApproxDP
from jaxdp.mechanism import Mechanism
from jaxdp.noise.gaussian import Gaussian
from jaxdp.sampling.base import Scheme

# Of the accountant, as Opacus stores it with a state.
_NAME = "jaxdp"
# Accountants whose states hold a history of the same kind: of this one, and of Opacus 1.6.
_MECHANISMS = (_NAME, "rdp", "prv", "gdp")


def loss_from_history(history: Sequence[Any]) -> PrivacyLoss:
    """Privacy loss of the DP-SGD steps in the history of an Opacus accountant.

    It assumes Poisson sampling: each record joins each step independently with probability
    sample_rate. Neighbours differ by one record more or less, and the worse direction is reported.
    A step with noise multiplier 0 has epsilon 0 and delta sample_rate.

    Args:
        history: `accountant.history` or `state_dict()["history"]`: triples (noise_multiplier,
            sample_rate, steps). A noise multiplier is the standard deviation of the noise divided
            by the clipping norm. Equal entries are merged.

    Returns:
        A `PrivacyLoss`. `ValueError` for bad entries and for an empty history.

    >>> import jaxdp as dp
    >>> loss = dp.interop.opacus.loss_from_history([(1.0, 0.01, 400), (1.0, 0.01, 600)])
    >>> print(f"{float(loss.epsilon(1e-6)):.4f}")
    2.1245
    """
    if len(history) == 0:
        raise ValueError("history must hold at least one (noise_multiplier, sample_rate, steps)")
    counts: dict[tuple[float, float], float] = {}
    losses = []
    for index, entry in enumerate(history):
        scale, sampling, steps = history_entry(f"history[{index}]", entry)
        if isinstance(sampling, Scheme):
            once = Mechanism(Gaussian(scale), 1.0, sampling=sampling, relation="add_remove")
            losses.append(sampling.releases(xp.float64(steps)) * privacy_loss(once))
        else:
            counts[scale, sampling] = counts.get((scale, sampling), 0.0) + steps
    # Without a record or a step nothing is spent, whatever the noise.
    counts = {values: n for values, n in counts.items() if values[1] > 0 and n > 0}
    silent = {rate: n for (scale, rate), n in counts.items() if scale == 0}
    counts = {values: n for values, n in counts.items() if values[0] > 0}
    if not silent and not counts and not losses:
        counts = {(1.0, 0.0): 0.0}
    if counts:
        scales, rates = np.array(list(counts)).T
        steps = Mechanism(Gaussian(scales), 1.0, rates, "add_remove")
        losses.append((np.array(list(counts.values())) * privacy_loss(steps)).sum())
    if silent:
        # A batch without noise tells all of a record that it holds.
        without_noise = privacy_loss(ApproxDP(0.0, np.array(list(silent))))
        losses.append((np.array(list(silent.values())) * without_noise).sum())
    return functools.reduce(operator.add, losses)


def history_entry(name: str, entry: Any) -> tuple[float, float | Scheme, int]:
    """(noise multiplier, sample rate or sampling scheme, steps) of an entry; else `ValueError`."""
    if not isinstance(entry, Sequence) or isinstance(entry, str) or len(entry) != 3:
        raise ValueError(f"{name} must be (noise_multiplier, sample_rate, steps), got {entry!r}")
    scale, sampling, steps = entry
    count = int(checks.whole(f"{name} steps".strip(), steps, upper=checks.LARGEST))
    name_of_scale = f"{name} noise_multiplier".strip()
    if isinstance(sampling, Scheme):
        return float(checks.positive(name_of_scale, scale)), sampling, count
    rate = checks.probability(f"{name} sample_rate".strip(), sampling, lift=True)
    return float(checks.zero_or_positive(name_of_scale, scale)), float(rate), count


class Accountant(Locked):
    """Accountant with the interface of Opacus: steps are recorded, epsilon is an upper bound.

    Neighbours differ by one record more or less. `register` makes it known to Opacus, after which
    `PrivacyEngine(accountant="jaxdp")` uses it. `history` is a list of (noise_multiplier,
    sample_rate or scheme, steps), where consecutive equal steps are one entry; queries validate it.
    A step with a noise multiplier of 0 has epsilon 0 and delta `sample_rate`. `ValueError` for bad
    input.

    >>> import jaxdp as dp
    >>> accountant = dp.dpsgd.Accountant()
    >>> for _ in range(1000):
    ...     accountant.step(noise_multiplier=1.0, sample_rate=0.01)
    >>> accountant.history, len(accountant)
    ([(1.0, 0.01, 1000)], 1000)
    >>> print(f"{accountant.get_epsilon(1e-6):.4f}")
    2.1245
    """

    def __init__(self) -> None:
        self.history: list[tuple[float, float | Scheme, int]] = []

    def step(
        self,
        noise_multiplier: ArrayLike,
        sample_rate: ArrayLike | None = None,
        *,
        sampling: Scheme | None = None,
    ) -> None:
        """Record one step.

        Args:
            noise_multiplier: noise over clipping norm.
            sample_rate: probability of each record to be sampled, independently, in [0, 1].
            sampling: instead, a scheme of `dp.sampling`, such as `WithoutReplacement` for cohorts
                of a fixed size; steps of a scheme that allocates records make whole epochs.
        """
        if (sample_rate is None) == (sampling is None):
            raise ValueError("give either sample_rate or sampling")
        if sampling is not None and not isinstance(sampling, Scheme):
            raise ValueError(
                "sampling must be a scheme with its sizes, such as dp.sampling.WithoutReplacement("
                f"batch_size=500, dataset_size=10_000), got {sampling!r}"
            )
        entry = history_entry("", (noise_multiplier, sampling or sample_rate, 1))
        with self._lock:
            if self.history and tuple(self.history[-1][:2]) == entry[:2]:
                self.history[-1] = (*entry[:2], self.history[-1][2] + 1)
            else:
                self.history.append(entry)

    def privacy_loss(self) -> PrivacyLoss:
        """The privacy loss of all steps; `ValueError` where there is none."""
        return loss_from_history(self.history)

    def get_epsilon(
        self,
        delta: ArrayLike,
        alphas: Any = None,
        *,
        eps_error: Any = None,
        delta_error: Any = None,
        poisson: bool = True,
    ) -> float:
        """The epsilon of all recorded steps at `delta`, in nats; 0 before the first step.

        `alphas`, `eps_error` and `delta_error` are accuracies of Opacus' own accountants and have
        no effect. `poisson=False` raises `ValueError`.
        """
        del alphas, eps_error, delta_error
        if not poisson:
            raise ValueError(f"poisson must be True: batches are Poisson samples, got {poisson!r}")
        delta = checks.probability("delta", delta)
        return float(self.privacy_loss().epsilon(delta)) if self.history else 0.0

    def get_delta(self, epsilon: ArrayLike) -> float:
        """The delta of all recorded steps at `epsilon` >= 0; 0 before the first step."""
        epsilon = checks.real("epsilon", epsilon, 0.0)
        return float(self.privacy_loss().delta(epsilon)) if self.history else 0.0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self):,} steps)"

    def __len__(self) -> int:
        """The number of steps."""
        return int(sum(entry[2] for entry in self.history))

    def __bool__(self) -> bool:
        """True: an accountant without steps is one."""
        return True

    @classmethod
    def mechanism(cls) -> str:
        """The name under which Opacus knows it."""
        return _NAME

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[Any], None]:
        """Hook that an Opacus optimiser calls after every step, with itself.

        `sample_rate` belongs to one batch; the rates of accumulated batches add up.
        """

        def hook(optimizer: Any) -> None:
            self.step(
                noise_multiplier=optimizer.noise_multiplier,
                sample_rate=sample_rate * optimizer.accumulated_iterations,
            )

        return hook

    def state_dict(self, destination: MutableMapping[str, Any] | None = None) -> Any:
        """History and mechanism, in `destination` if given; the history is a copy."""
        state = OrderedDict() if destination is None else destination
        state["history"], state["mechanism"] = list(self.history), self.mechanism()
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any] | None) -> None:
        """Restore the result of `state_dict`, of this accountant or one of Opacus.

        `ValueError`, and no change, for anything else.
        """
        if not state_dict or not {"history", "mechanism"} <= set(state_dict):
            raise ValueError(
                f"state_dict must hold 'history' and 'mechanism', got {sorted(state_dict or ())}"
            )
        checks.one_of("state_dict['mechanism']", state_dict["mechanism"], _MECHANISMS)
        history = [history_entry(f"history[{i}]", x) for i, x in enumerate(state_dict["history"])]
        if history:
            loss_from_history(history)
        self.history = history


def register(name: str = _NAME) -> None:
    """Register `Accountant` with Opacus, for `PrivacyEngine(accountant="jaxdp")`.

    The searches of Opacus for a noise multiplier use it too. A second call changes nothing.

    Args:
        name: under which Opacus finds it. If another accountant has the name, Opacus raises
            `ValueError`.

    Returns:
        None. `ImportError` if Opacus is not installed.

    >>> import importlib.util
    >>> import jaxdp as dp
    >>> if importlib.util.find_spec("opacus"):
    ...     dp.dpsgd.register()
    """
    try:
        accountants = importlib.import_module("opacus.accountants")
        registry = importlib.import_module("opacus.accountants.registry")
    except ImportError as error:
        raise ImportError("opacus is needed here: pip install opacus") from error
    accountants.IAccountant.register(Accountant)
    try:
        kind = type(registry.create_accountant(name))
    except ValueError:
        kind = object
    # By name: a module that was loaded again has made another class.
    is_registered = (kind.__module__, kind.__name__) == (Accountant.__module__, Accountant.__name__)
    registry.register_accountant(name, Accountant, force=is_registered)
