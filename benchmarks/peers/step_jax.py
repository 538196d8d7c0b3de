#!/usr/bin/env python3
"""JAX's counterpart of `tandem bench step --model net --prefetched`: the step of step.py
as one jitted function, with images in JAX's preferred layout, channels last.

usage: step_jax.py --data FOLDER [--batch-size 64] [--threads 1] [--steps 50]
                   [--warmup 10] [--precision fp32|bf16]

bf16: factors of products are bfloat16; parameters and sums are float32.
"""
import json
import os
import time

import common
import models

RECIPE = models.RECIPES["net"]
RHO, EPSILON, RATE = 0.9, 1e-6, 1.0


def read_idx(folder, name):
    import numpy
    raw, begin, dims = common.read_idx_bytes(folder, name)
    return numpy.frombuffer(raw, numpy.uint8, offset=begin).reshape(dims)


def batches(args, count):
    import numpy
    from jax import numpy as jnp
    pixels = read_idx(args.data, "train-images-idx3-ubyte")
    labels = read_idx(args.data, "train-labels-idx1-ubyte").astype(numpy.int32)
    order = numpy.random.default_rng(0).permutation(len(labels))
    found = []
    for i in range(count):
        some = order[i * args.batch_size:(i + 1) * args.batch_size]
        images = (pixels[some, :, :, None].astype(numpy.float32) / 255 - RECIPE.mean) / RECIPE.std
        found.append((jnp.asarray(images), jnp.asarray(labels[some])))
    return found


def make_parameters(key):
    import jax
    shapes = {"conv1": (3, 3, 1, 32), "conv2": (3, 3, 32, 64), "fc1": (9216, 128),
              "fc2": (128, 10)}
    parameters = {}
    for name, shape in shapes.items():
        key, weights, biases = jax.random.split(key, 3)
        inputs = 1
        for size in shape[:-1]:
            inputs *= size
        bound = inputs ** -0.5
        parameters[name] = (
            jax.random.uniform(weights, shape, minval=-bound, maxval=bound),
            jax.random.uniform(biases, shape[-1:], minval=-bound, maxval=bound))
    return parameters


def make_step(dtype):
    import jax
    from jax import lax, numpy as jnp, tree_util

    def convolution(images, layer):
        return lax.conv_general_dilated(
            images.astype(dtype), layer[0].astype(dtype), (1, 1), "VALID",
            dimension_numbers=("NHWC", "HWIO", "NHWC")).astype(jnp.float32) + layer[1]

    def linear(values, layer):
        return jnp.dot(values.astype(dtype), layer[0].astype(dtype),
                       preferred_element_type=jnp.float32) + layer[1]

    def dropout(key, share, values):
        kept = jax.random.bernoulli(key, 1 - share, values.shape)
        return jnp.where(kept, values / (1 - share), 0)

    def loss_of(parameters, images, labels, key):
        first, second = jax.random.split(key)
        values = jax.nn.relu(convolution(images, parameters["conv1"]))
        values = jax.nn.relu(convolution(values, parameters["conv2"]))
        values = lax.reduce_window(values, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1),
                                   "VALID")
        values = dropout(first, 0.25, values).reshape(len(labels), -1)
        values = dropout(second, 0.5, jax.nn.relu(linear(values, parameters["fc1"])))
        outputs = jax.nn.log_softmax(linear(values, parameters["fc2"]))
        return -jnp.take_along_axis(outputs, labels[:, None], 1).mean()

    def step(parameters, squares, changes, images, labels, key):
        loss, gradients = jax.value_and_grad(loss_of)(parameters, images, labels, key)

        # The formula of torch.optim.Adadelta.
        squares = tree_util.tree_map(
            lambda s, g: RHO * s + (1 - RHO) * g * g, squares, gradients)
        updates = tree_util.tree_map(
            lambda g, s, c: g * jnp.sqrt(c + EPSILON) / jnp.sqrt(s + EPSILON),
            gradients, squares, changes)
        changes = tree_util.tree_map(
            lambda c, u: RHO * c + (1 - RHO) * u * u, changes, updates)
        parameters = tree_util.tree_map(lambda p, u: p - RATE * u, parameters, updates)
        return parameters, squares, changes, loss

    return jax.jit(step, donate_argnums=(0, 1, 2))


def time_steps(args):
    import jax
    from jax import numpy as jnp, tree_util
    fetched = batches(args, 32)
    key = jax.random.PRNGKey(0)
    parameters = make_parameters(key)
    squares = tree_util.tree_map(jnp.zeros_like, parameters)
    changes = tree_util.tree_map(jnp.zeros_like, parameters)
    step = make_step(jnp.bfloat16 if args.precision == "bf16" else jnp.float32)
    times, losses = [], []
    for number in range(args.warmup + args.steps):
        start = time.perf_counter()
        images, labels = fetched[number % len(fetched)]
        key, used = jax.random.split(key)
        parameters, squares, changes, loss = step(
            parameters, squares, changes, images, labels, used)
        losses.append(float(loss.block_until_ready()))
        if number >= args.warmup:
            times.append(1000 * (time.perf_counter() - start))
    return times, losses


def main():
    args = common.step_arguments(__doc__).parse_args()
    # JAX uses one thread per available core.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:args.threads])
    times, losses = time_steps(args)
    import jax
    median, p10, p90 = common.spread(times)
    print(json.dumps({
        "ms_per_step": median, "p10": p10, "p90": p90, "first_loss": losses[0],
        "last_loss": losses[-1], "batch": args.batch_size, "threads": args.threads,
        "steps": args.steps, "precision": args.precision, "jax": jax.__version__}))


if __name__ == "__main__":
    main()
