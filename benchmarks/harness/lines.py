"""The lines of scripts/bench. A line is a function of (settings, log) that measures some
sides together and returns a Measured, from which table.py makes rows."""
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
