"""Networks that tandem cannot train, for the tests of messages. Needs PyTorch 2.4."""
import torch
import torch.nn as nn


@torch.library.custom_op("fixtures::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


@twice.register_fake
def _(x):
    return torch.empty_like(x)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)


class FixedBatch(Layer):
    def forward(self, x):
        return self.layer(x)


class TwoInputs(Layer):
    def forward(self, x, y):
        return self.layer(x + y)


class TwoOutputs(Layer):
    def forward(self, x):
        return self.layer(x), x


class ControlFlow(Layer):
    def forward(self, x):
        return torch.cond(
            x.sum() > 0, lambda y: self.layer(y), lambda y: -self.layer(y), (x,))


class Random(Layer):
    def forward(self, x):
        return self.layer(x + torch.poisson(x.abs()))


class CustomOperator(Layer):
    def forward(self, x):
        return twice(self.layer(x))


class Evaluation(nn.Sequential):
    """For export in evaluation mode."""

    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(),
            nn.Dropout(0.5), nn.Linear(72, 4))
        self.eval()


class Normalised(Layer):
    """For run_decompositions(): batch norm then returns its statistics, and outputs of
    the graph replace the buffers."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(self.layer(x))
