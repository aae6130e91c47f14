"""The regularised exponential mechanism for logistic regression: one draw is the private model.

theta ~ exp(-k (f(theta) + (l + m) |theta|^2 / 2)), f the mean loss of n records, G-Lipschitz in
each record and L-smooth, l the strength of the problem's own L2 penalty. Replacing a record adds a
2 G k / n-Lipschitz function to a k (l + m)-strongly convex one, so the draw is
GDP(2 G sqrt(k) / (n sqrt(l + m))); with n public and fixed, adding or removing one costs half.
E F(theta) - min F over |theta| <= R is at most d/k + m R^2 / 2, F = f + l |theta|^2 / 2.
Source: Gopi, Lee & Liu, Private convex optimization via exponential mechanism, COLT 2022.

The draw is made by the proximal sampler: y ~ N(theta, eta I), then theta from the density
proportional to exp(-potential - |theta - y|^2 / (2 eta)), by rejection. That step is exact wherever
the proposal is centred: f lies above its tangent at any z, and the Gaussian under the tangent is
the proposal, accepted with probability exp(-k (f(x) - f(z) - f'(z) (x - z))).
Source: Lee, Shen & Tian, COLT 2021; its rate under a log-Sobolev inequality: Chen, Chewi, Salim &
Wibisono, Improved analysis for a proximal algorithm for sampling, COLT 2022.

With r = mu n / (2 G) the optimum is l + m = max(l, sqrt(2 d) / (r R)), k = r^2 (l + m): without
a penalty the bound is 2 sqrt(2 d) G R / (mu n). Starting at 0, KL after N steps is at most W^2
/ (2 eta) (1 + k (l + m) eta)^(2 - 2 N), W = G / (l + m) + sqrt(d / (k (l + m))), and total
variation the root of half of it. N grows with L / (l + m), hence with n.
"""

from jaxdp.solvers.exponential_mechanism.plan import Plan as Plan
from jaxdp.solvers.exponential_mechanism.plan import plan as plan
from jaxdp.solvers.exponential_mechanism.sample import sample as sample
