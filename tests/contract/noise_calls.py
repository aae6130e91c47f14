"""What every noise must do with limits, bad input and the transformations of JAX."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from noise_laws import Case


def check_least_numbers(case: Case) -> None:
    """Subnormal numbers: a scale is refused, a shift is lifted; traced ones as well."""
    least = float(np.finfo(np.float64).tiny)
    with pytest.raises(ValueError, match=f"({case.parameters}) must lie in"):
        case.family(0.01 * least)
    if case.lattice or case.own:
        return
    noise, truth = case.family(2.4 * least), float(case.family(2.4).delta(1.0, 0.0))
    for shift in (0.5 * least, 5e-324):
        for delta in (noise.delta, jax.jit(noise.delta)):
            assert delta(shift, 0.0) == pytest.approx(truth, rel=1e-12)
        rho, far = case.family(1e200).zcdp(shift)[1], case.family(1e200).renyi(shift, 2.0)
        assert rho > 0
        assert far > 0


def check_bad_input_is_never_private(case: Case) -> None:
    """Refused where it is known; in a trace, and past the constructor, it claims nothing."""
    scales, noise = np.array([0.0, -1.0, np.nan, -np.inf]), case.family(1.0)

    @jax.jit
    @jax.vmap
    def traced(scale, shift, epsilon):
        built = case.family(scale)
        return built.delta(shift, epsilon), built.zcdp(1.0)[1]

    # A bad value in each lane.
    lanes = [*((s, 1.0, 1.0) for s in scales), (1.0, -1.0, 1.0), (1.0, np.nan, 1.0)]
    delta, rho = traced(*np.transpose([*lanes, (1.0, 1.0, np.nan)]))
    assert not np.any(delta <= 1.0), delta
    assert not np.any(rho[: len(scales)] <= 1e300), rho
    replaced = jax.tree.map(lambda _: jnp.asarray(scales), noise)
    if case.own:
        with pytest.raises(ValueError, match=r"with scale = .*: a scale must be above 0"):
            replaced.delta(1.0, 1.0)
    else:
        assert not np.any(replaced.delta(1.0, 1.0) <= 1.0)
        assert not np.any(abs(replaced.sample(jax.random.key(0))) < 1e300)
    for scale in scales:
        with pytest.raises(ValueError, match=f"({case.parameters}) must lie in"):
            case.family(scale)
    for shift in (-1.0, np.nan):
        with pytest.raises(ValueError, match="shift must lie in"):
            noise.log_delta(shift, 1.0)
    with pytest.raises(ValueError, match="epsilon must lie in"):
        noise.log_delta(1.0, np.nan)
    with pytest.raises(ValueError, match="dtype"):
        noise.log_delta(1.0 + 1j, 1.0)
    for order in (0.999, 0.5, np.nan):
        with pytest.raises(ValueError, match="order must lie in"):
            noise.renyi(1.0, order)


def check_shifts_of_a_lattice_are_whole(case: Case) -> None:
    if not case.lattice:
        return
    noise = case.family(1.0)
    answers = partial(noise.log_delta, epsilon=1.0), partial(noise.renyi, order=2.0)
    for answer in (*answers, noise.zcdp, noise.pure_epsilon, noise.structure):
        with pytest.raises(ValueError, match=r"shift must be whole, got 1\.5"):
            answer(1.5)
        assert np.isnan(jax.tree.leaves(jax.jit(answer)(1.5))[-1])


def check_limits(case: Case) -> None:
    noise = case.family(1.0)
    assert noise.delta(0.0, 0.0) == 0
    assert noise.delta(0.0, 3.0) == 0
    np.testing.assert_allclose(noise.delta(0.0, -1.0), 1 - np.exp(-1), rtol=1e-14)
    assert noise.delta(1.0, np.inf) == (0 if np.isinf(case.bound) else noise.delta(1.0, 1e3))
    if not case.lattice and not case.own:
        # The ratio underflows, the loss does not.
        assert case.family(1e200).delta(1e-200, 0.0) > 0
    assert noise.delta(1.0, -np.inf) == 1
    assert noise.delta(np.inf, 1.0) == 1
    if case.own:
        with pytest.raises(ValueError, match="log_density must be a number everywhere"):
            case.family(np.inf).delta(1.0, 0.0)
        return
    assert case.family(np.inf).delta(1.0, 0.0) == 0
    assert not case.family(np.inf).delta(np.inf, 0.0) <= 1


def check_transformations(case: Case) -> None:
    """jit = eager, vmap = loop, broadcasting = both."""
    shifts = [[1.0], [2.0]] if case.lattice else [[0.1], [2.0]]
    scale, shift = jnp.array([0.5, 1.0, 4.0]), jnp.array(shifts)
    epsilon = jnp.array([0.7, -0.2, 3.0])

    def log_delta(s, m, e):
        return case.family(s).log_delta(m, e)

    @jax.jit
    def compiled(s, m, e):
        inner = jax.vmap(log_delta, (0, None, 0))
        return log_delta(s, m, e), jax.vmap(inner, (None, 0, None))(s, m[:, 0], e)

    eager = log_delta(scale, shift, epsilon)
    assert eager.shape == (2, 3)
    for found in compiled(scale, shift, epsilon):
        np.testing.assert_allclose(found, eager, rtol=1e-14)
    for i in range(2):
        for j in range(3):
            one = log_delta(float(scale[j]), float(shift[i, 0]), float(epsilon[j]))
            np.testing.assert_allclose(one, eager[i, j], rtol=1e-14)


def check_gradients(case: Case) -> None:
    """Forward and reverse derivatives against central differences; the second one as well."""
    whole = ((1.0, 1.0, 0.4), (2.0, 1.0, 0.01), (0.7, 2.0, -0.8), (1.0, 4.0, 1.0))
    points = np.array(whole if case.lattice else case.smooth)
    # On the lattice the shift is whole: there is no derivative in it.
    variables = (0, 2) if case.lattice else (0, 1, 2)

    @jax.jit
    @jax.vmap
    def answers(point):
        def log_delta(x):
            return case.family(x[0]).log_delta(x[1], x[2])

        reverse = jax.grad(log_delta)
        second = jnp.diag(jax.jacfwd(reverse)(point))
        return log_delta(point), reverse(point), jax.jacfwd(log_delta)(point), second

    steps = [1e-5 * np.maximum(abs(points), 0.1) * (np.arange(3) == k) for k in variables]
    lanes = np.stack([points, *(points + side * h for h in steps for side in (1, -1))])
    value, reverse, forward, second = (
        np.asarray(x).reshape(lanes.shape[:2] + x.shape[1:]) for x in answers(lanes.reshape(-1, 3))
    )
    for i, (k, h) in enumerate(zip(variables, steps, strict=True)):
        up, down, width = 2 * i + 1, 2 * i + 2, 2 * h[:, k]
        np.testing.assert_allclose(reverse[0, :, k], forward[0, :, k], rtol=1e-12)
        numeric = (value[up] - value[down]) / width
        np.testing.assert_allclose(reverse[0, :, k], numeric, rtol=3e-6, atol=1e-8)
        numeric = (reverse[up, :, k] - reverse[down, :, k]) / width
        np.testing.assert_allclose(second[0, :, k], numeric, rtol=3e-5, atol=1e-6)
