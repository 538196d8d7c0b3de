"""The lines of scripts/bench: what is measured together. Each takes (settings, log),
and returns what it Measured; the rows of table.py are made of that."""
import line_comm
import line_step
import line_train

LINES = {
    "step": line_step.step,
    "newest": line_step.newest,
    "primitives": line_step.primitives,
    "optimizer": line_step.optimizer,
    "epoch": line_train.epoch,
    "models": line_train.models,
    "allreduce": line_comm.allreduce,
    "loader": line_step.loader,
    "startup": line_train.startup,
    "memory": line_train.memory,
    "links": line_comm.links,
    "plan": line_comm.plan,
}
