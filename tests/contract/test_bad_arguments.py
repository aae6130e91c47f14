"""Bad arguments: the error names the argument and says what to give. Without beartype's checks."""

from processes import run

CODE = """
import matplotlib
matplotlib.use("Agg")
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np
import jaxdp as dp
from concurrent.futures import ThreadPoolExecutor

class Client:
    "As Dask has it: no executor, but one can be had of it."
    def get_executor(self):
        raise AssertionError("called")

def swept(executor):
    return dp.sweep(lambda scale: scale, {"scale": [1.0]}, "/dev/null/no", executor=executor)

gaussian = dp.Mechanism(dp.Gaussian(1.0), 1.0)
loss = dp.privacy_loss(dp.PureDP(jnp.ones(3)))
batch = dp.Mechanism(dp.Gaussian(jnp.ones(3)), 1.0)
huge = 10**400
bad = (ValueError, TypeError)
calls = {
    "source advantage": (bad, lambda: dp.risk.advantage(1.0), "source must be a guarantee"),
    "source risk": (bad, lambda: dp.risk.bayes_risk("a", 0.5), "source must be a guarantee"),
    "source rate": (bad, lambda: dp.risk.tpr_at_fpr(dp.Gaussian(1.0), 0.1), "dp.Mechanism(noise"),
    "losses": (bad, lambda: dp.PrivacyLoss.from_pmf(huge, 1.0, 1.0), "losses must be real"),
    "masses": (bad, lambda: dp.PrivacyLoss.from_pmf([0.0], [huge], [1.0]), "masses_p must be real"),
    "scale": (bad, lambda: dp.Gaussian(huge), "scale must be real"),
    "scales": (bad, lambda: dp.Gaussian([1.0, huge]), "scale must be real"),
    "steps": (bad, lambda: dp.dpsgd.Phase(1.0, sampling_prob=0.1, steps=huge), "steps must"),
    "epsilon": (bad, lambda: loss.delta(["a"]), "epsilon must be real"),
    "zero": (bad, lambda: dp.Gaussian(0.0), "scale must lie in (0, inf]"),
    "subnormal": (bad, lambda: dp.Gaussian(5e-324), "scale must lie in [2.22507e-308, inf]"),
    "points": (bad, lambda: loss.bounds(1.0, points="a"), "points must be a power of 2"),
    "points half": (bad, lambda: loss.bounds(1.0, points=256.5), "points must be a power of 2"),
    "axis": (bad, lambda: loss.sum("a"), "axis must be one of the batch"),
    "axis half": (bad, lambda: loss.sum(0.5), "axis must be one of the batch"),
    "index": (IndexError, lambda: loss[2**63], "index"),
    "index truth": (IndexError, lambda: loss[np.True_], "index must be whole numbers"),
    "index true": (IndexError, lambda: loss[True], "index must be whole numbers"),
    "relation": (
        bad,
        lambda: dp.Mechanism(dp.Gaussian(1.0), 1.0, 0.1, np.array(["add", "remove"])),
        "relation must be one of",
    ),
    "relation law": (
        bad, lambda: dp.PrivacyLoss.from_pmf([0.0], [1.0], [1.0], "ADD_REMOVE"), "relation must be"
    ),
    "relation pair": (bad, lambda: dp.privacy_loss(dp.PureDP(1.0), 7), "relation must be one of"),
    "direction": (
        bad, lambda: dp.to_rdp(dp.PrivacyLoss.from_pmf([0.0], [1.0], [1.0], "remove"), 2.0),
        "an RDP bounds the divergences of both directions",
    ),
    "family": (bad, lambda: dp.fit_noise(np.ones(2), (1.0, 1e-6), 1.0), "family must be one of"),
    "executor client": (bad, lambda: swept(Client()), "client.get_executor()), got a Client"),
    "executor name": (bad, lambda: swept("processes"), "must be a concurrent.futures.Executor"),
    "executor class": (bad, lambda: swept(ThreadPoolExecutor), "got a type"),
    "filter": (bad, lambda: dp.Filter.from_json("[" * 100000), "text must be the JSON"),
    "loss": (bad, lambda: dp.PrivacyLoss.from_json("[" * 100000), "text must be the JSON"),
    "phases": (bad, lambda: dp.dpsgd.epsilon(phases=[(1.0, 0.01, 100)]), "dp.dpsgd.Phase("),
    "phases number": (bad, lambda: dp.dpsgd.epsilon(phases=1.0), "dp.dpsgd.Phase("),
    "phases none": (bad, lambda: dp.dpsgd.epsilon(phases=[]), "phases must be one Phase"),
    "plot list": (bad, lambda: dp.plot.profile([gaussian]), "give {label: mechanism}"),
    "plot bare": (bad, lambda: dp.plot.profile(gaussian), "give {label: mechanism}"),
    "plot empty": (bad, lambda: dp.plot.profile({}), "give {label: mechanism}"),
    "plot noise": (bad, lambda: dp.plot.profile({"a": dp.Gaussian(1.0)}), "dp.Mechanism(noise"),
    "plot batch": (bad, lambda: dp.plot.profile({"a": batch}), "a batch of shape (3,) for 'a'"),
    "plot loss": (bad, lambda: dp.plot.tradeoff({"a": loss}), "a batch of shape (3,) for 'a'"),
    "plot tradeoff": (bad, lambda: dp.plot.tradeoff(gaussian), "give {label: mechanism}"),
    "plot steps": (bad, lambda: dp.plot.epsilon_by_step(gaussian, 5, 1e-5), "give {label: step}"),
    "plot step": (bad, lambda: dp.plot.epsilon_by_step({"a": batch}, 5, 1e-5), "a batch of shape"),
    "plot density": (bad, lambda: dp.plot.density([dp.Gaussian(1.0)]), "give {label: noise}"),
    "plot one": (bad, lambda: dp.plot.density(dp.Gaussian(1.0)), "give {label: noise}"),
    "plot release": (bad, lambda: dp.plot.density({"a": gaussian}), "give {label: noise}"),
    "plot widths": (bad, lambda: dp.plot.density({"a": batch.noise}), "a batch of shape (3,)"),
    "plot curve": (bad, lambda: dp.plot.training([np.ones(3)]), "give {label: curve}"),
}
for name, (kinds, call, said) in calls.items():
    try:
        call()
    except kinds as error:
        assert said in str(error), (name, error)
    else:
        raise AssertionError(name)
# A count above 2^63 is a number as any other.
sizes = {"dataset_size": 2**63, "batch_size": 2**60, "epochs": 1}
assert dp.dpsgd.Phase(1.0, **sizes).steps == 8
"""


def test_errors_name_the_argument_and_say_what_to_give():
    run(CODE)
