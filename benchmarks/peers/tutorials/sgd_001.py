"""The common part of tutorial 001's two programs: the network, and the training loop, which
ends when the loss of an epoch is less than 10e-5 below that of the epoch before. The listing
leaves out the break that the text describes, and the first value of last_loss; it counts
epochs from 0, but its output counts from 1, as here."""
import common
import models

common.limit_threads(1)
import torch  # noqa: E402
import torch.nn as nn  # noqa: E402

# Pixels from 0 to 1 and seed 7: see recipes/local-sgd-mpi.toml.
RECIPE = models.RECIPES["net5x5"]._replace(mean=0.0, std=1.0)
SEED = 7


def make_net():
    """The tutorial does not show forward(); its losses show that it ends in a softmax."""
    return nn.Sequential(models.make_model("net5x5", SEED), nn.Softmax(dim=1))


def train(model, dataloader, epochs, rank, watch, size=None):
    """Trains until it has converged. `size`: divisor of the epoch's sums; by default the
    size of the whole dataset, as in the tutorial."""
    size = size or len(dataloader.dataset)
    common.say(f'Training started...\n{size} data samples ---> Worker: {rank}')
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    last_loss = float("inf")
    for epoch in range(1, epochs + 1):
        with watch:
            loss, accuracy = train_epoch(model, dataloader, loss_fn, optimizer)
        loss /= size
        accuracy /= size
        common.say(f'rank: {rank} -- epoch: {epoch} --> loss: {loss:>4f} -- '
                   f'accuracy: {(100*accuracy):>0.1f}%')
        if last_loss - loss < 10e-5:
            common.say(f'--- Converged on rank {rank} after {epoch} epochs ---')
            break
        last_loss = loss


def train_epoch(model, dataloader, loss_fn, optimizer):
    loss_total = 0
    accuracy = 0
    for X, y in dataloader:
        optimizer.zero_grad()
        y_pred = model(X)
        loss = loss_fn(y_pred, y)
        loss.backward()
        optimizer.step()
        loss_total += loss.item()*X.size(0)
        accuracy += (y_pred.argmax(1) == y).type(torch.float).sum().item()
    return loss_total, accuracy
