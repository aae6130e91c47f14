"""Proofs of privacy statements in ball arithmetic, by a program of its own.

It imports nothing else of this package, and neither JAX nor NumPy: only python-flint, whose balls
contain the true value of every number that a conclusion rests on. Floating point chooses
parameters alone: a bad choice makes a bracket wide, never wrong. Floats of a statement are read as
the binary numbers that they are.

THE THEOREM. P, Q: the dominating pair of one direction, L = sum_i L_i = log dP/dQ under P, of
independent releases, delta(eps) = E (1 - e^(eps - L))_+, M(s) = E e^(s L) = prod_i M_i(s)^(n_i),
over finite losses; infinite ones are counted apart.

1. Inversion. For c > 0: delta(eps) = (1 / 2 pi) int M(s) e^(-s eps) / (s (s + 1)) dt, s = c + i t,
   because int_0^oo (1 - e^-x) e^(-s x) dx = 1 / (s (s + 1)).
2. Trapezoidal rule. By Poisson's formula the sum with step 2 pi / u is sum_m e^(c u m) delta(eps +
   u m) over all whole m. No term is negative, so the sum is at least delta. The other terms obey
   Markov's inequality at another tilt: delta(x) <= k(v) M(v) e^(-v x), k(v) = v^v / (1 + v)^(1 +
   v), for every v >= 0, k(0) = 1.
3. Truncation. If |M(c + i t)| <= R for t >= T, the rest is at most R e^(-c eps) / (pi T).
4. Smoothing. One more Gaussian release, mu^2 = V, multiplies M by e^((s^2 + s) V / 2) and can only
   raise delta. With f_v the density of the smoothed loss, d delta_v / dv = f_v(eps) / 2. For v <= V
   and W = (1 + g) V, f_v(eps) <= sqrt(W / v) e^(W^2 / (8 V g)) f_W(eps), since (y + x)^2 >= y^2 /
   (1 + g) - x^2 / g, |x| <= W / 2. Hence delta_V(eps) - delta(eps) is between 0 and V sqrt(1 + g)
   e^((1 + g)^2 V / (8 g)) f_W(eps); here g = 1/8. f_W by 2 as well.
5. Lattice. If every L is in o + w Z, the inverse transform over one period 2 pi / w with N points
   has the same other terms, u = w N, and no rest: the kernel becomes a difference of two geometric
   series.

One release alone, Gaussians, few sums of atoms and few Laplace releases are exact: see `exact`.

The accountant reads files and stored losses by `files` and `schema`, which need no python-flint.
It uses nothing else of this package.
"""
