"""What document 001's two programs share: its network, and its training loop, which ends
when the loss of an epoch is less than 10e-5 below the last one's. Its listing leaves out
the break that its text has, and the first epoch's last loss; it counts epochs from 0, its
output from 1, as here."""
import common
import models

common.limit_threads(1)
import torch  # noqa: E402
import torch.nn as nn  # noqa: E402

# Pixels from 0 to 1 and seed 7: see recipes/local-sgd-mpi.toml.
RECIPE = models.RECIPES["net5x5"]._replace(mean=0.0, std=1.0)
SEED = 7


def make_net():
    """The document does not show forward(); its losses say that it ends in a softmax."""
    return nn.Sequential(models.make_model("net5x5", SEED), nn.Softmax(dim=1))


def train(model, dataloader, epochs, rank, watch, size=None):
    """`size`: divisor of the epoch's sums; the size of the whole dataset by default, as in
    the document."""
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
