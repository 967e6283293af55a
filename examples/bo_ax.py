"""
A calibrated bound in Ax
========================

Ax takes acquisition functions of BoTorch by class; how to make one from its data is said once, by
an input constructor. Needs ``pip install ax-platform``; it was run with Ax 1.3.1, which pins
BoTorch 0.18.1.
"""

# sphinx_gallery_thumbnail_path = "figures/bo_regret.png"

import warnings
from typing import Any

import numpy as np
from ax.adapter.registry import Generators
from ax.api.client import Client
from ax.api.configs import RangeParameterConfig
from ax.generation_strategy.generation_node import GenerationNode
from ax.generation_strategy.generation_strategy import GenerationStrategy
from ax.generation_strategy.generator_spec import GeneratorSpec
from ax.generation_strategy.transition_criterion import MinTrials
from botorch.acquisition.input_constructors import acqf_input_constructor

from sharpgp import CalibrationWarning, CrossValidated
from sharpgp.bo import CalibratedUpperConfidenceBound
from sharpgp.gp.training import train

# %%
# Ax hands over its own model and the data, in units of its own (parameters in [0, 1], a metric to
# be maximised). The calibrated model is trained on these data; Ax's model is not used.


@acqf_input_constructor(CalibratedUpperConfidenceBound)
def calibrated_inputs(
    model: Any, training_data: Any, delta: float = 0.99, X_pending: Any = None, **other: Any
) -> dict[str, Any]:
    """Arguments of the acquisition function from what Ax knows."""
    data = training_data if hasattr(training_data, "X") else next(iter(training_data.values()))
    posterior, _ = train(data.X, data.Y[:, 0])
    calibrated = CrossValidated(folds=5).fit(posterior)
    return {"model": calibrated, "delta": delta, "X_pending": X_pending}


# %%
# Twelve points of a space-filling design, then calibrated bounds.

strategy = GenerationStrategy(
    name="calibrated",
    nodes=[
        GenerationNode(
            name="design",
            generator_specs=[GeneratorSpec(Generators.SOBOL, generator_kwargs={"seed": 0})],
            transition_criteria=[MinTrials(threshold=12, transition_to="bounds")],
        ),
        GenerationNode(
            name="bounds",
            generator_specs=[
                GeneratorSpec(
                    Generators.BOTORCH_MODULAR,
                    generator_kwargs={
                        "botorch_acqf_class": CalibratedUpperConfidenceBound,
                        "acquisition_options": {"delta": 0.9},
                    },
                )
            ],
        ),
    ],
)

client = Client(random_seed=0)
client.configure_experiment(
    parameters=[
        RangeParameterConfig(name=name, parameter_type="float", bounds=(-1, 1)) for name in "ab"
    ]
)
client.configure_optimization(objective="score")
client.set_generation_strategy(strategy)

# %%
# Sixteen observations with a little noise. The largest value, 0, lies at (0.3, -0.2).

rng = np.random.default_rng(0)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", CalibrationWarning)
    for _ in range(16):
        for trial, point in client.get_next_trials(1).items():
            score = -((point["a"] - 0.3) ** 2) - (point["b"] + 0.2) ** 2 + 0.02 * rng.normal()
            client.complete_trial(trial, raw_data={"score": score})

best, *_ = client.get_best_parameterization()
print({name: round(value, 2) for name, value in best.items()})
