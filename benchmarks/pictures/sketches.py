"""Sketches of the architecture and of each strategy."""
from draw import ACTIVATIONS, GRADIENTS, NOTE, PARAMETERS, PLATE, STATE, TINTS, Picture

WIDTH, HEIGHT = 600, 284
RANK = (170, 120)
LAYERS = 4


def rank(picture, x, y, title, layers=range(LAYERS), data="", state=None, note="",
         height=RANK[1]):
    """A rank: its number, a bar for each layer whose parameters it holds, a bar for its
    share of the optimizer's state, and its samples."""
    picture.box(x, y, RANK[0], height, TINTS[NOTE], NOTE, 8)
    picture.text(x + 12, y + 20, title, 13, bold=True)
    if data:
        picture.text(x + RANK[0] - 12, y + 20, data, 12, NOTE, "end")
    state = layers if state is None else state
    for place, layer in enumerate(layers):
        top = y + 32 + 17 * place
        picture.box(x + 12, top, 104, 13, TINTS[PARAMETERS], PARAMETERS, 2)
        picture.text(x + 64, top + 10.5, f"layer {layer + 1}", 10, PARAMETERS, "middle")
        if layer in state:
            picture.box(x + 122, top, 36, 13, TINTS[STATE], STATE, 2)
    picture.text(x + 12, y + height - 9, note, 11, NOTE)


def sketch(title, caption, keys):
    """An empty sketch: its title, two lines about its messages, and its legend."""
    picture = Picture(WIDTH, HEIGHT, f"{title}: {' '.join(caption)}")
    picture.text(20, 30, title, 16, bold=True)
    picture.lines(20, HEIGHT - 56, caption)
    x = 20
    for color, words, kind in keys:
        x = picture.key(x, HEIGHT - 14, color, words, kind, 11)
    return picture


HELD = [(PARAMETERS, "parameters", "box"), (STATE, "optimizer state", "box")]
SUM = (GRADIENTS, "gradients", "arrow")
ACROSS = (ACTIVATIONS, "activations", "arrow")
COPY = (PARAMETERS, "parameters", "arrow")
TOP = 58
LEFT, RIGHT = 30, WIDTH - 30 - RANK[0]


def between(picture, y, color, words, both=True, dash=False, back=False):
    """An arrow with two lines of text from the left rank to the right one."""
    ends = (LEFT + RANK[0] + 8, RIGHT - 8)
    start, end = reversed(ends) if back else ends
    picture.arrow(start, y, end, y, color, both, dash)
    picture.text(WIDTH / 2, y - 8, words[0], 12, color, "middle", bold=True)
    if len(words) > 1:
        picture.text(WIDTH / 2, y + 18, words[1], 11, NOTE, "middle")


def sequential():
    picture = sketch("Sequential", [
        "One rank holds everything and reads every sample.",
        "Nothing is sent. The other strategies are compared with this result."], HELD)
    rank(picture, (WIDTH - RANK[0]) / 2, TOP, "rank 0", data="all samples")
    return picture


def data_parallel():
    picture = sketch("Data parallel", [
        "Every rank holds all parameters and reads its own samples. An all-reduce averages",
        "the gradients in every step, bucket by bucket while backward runs."], HELD + [SUM])
    rank(picture, LEFT, TOP, "rank 0", data="batch 0")
    rank(picture, RIGHT, TOP, "rank 1", data="batch 1")
    between(picture, TOP + 62, GRADIENTS, ["all-reduce", "every step"])
    return picture


def sharded_update():
    picture = sketch("Data parallel, sharded update (ZeRO-1)", [
        "Gradients are averaged in every step. Each rank keeps the optimizer state of its",
        "share, updates this share, and sends the new parameters to the other ranks."],
        HELD + [SUM, COPY])
    rank(picture, LEFT, TOP, "rank 0", data="batch 0", state=(0, 1))
    rank(picture, RIGHT, TOP, "rank 1", data="batch 1", state=(2, 3))
    between(picture, TOP + 36, GRADIENTS, ["1. all-reduce", "every step"])
    between(picture, TOP + 92, PARAMETERS, ["2. all-gather", "every step"])
    return picture


def averaging():
    picture = sketch("Local SGD (parameter averaging)", [
        "Each rank trains alone, so parameters differ between ranks. They are averaged every",
        "K steps, after each epoch, or once at the end."], HELD + [COPY])
    rank(picture, LEFT, TOP, "rank 0", data="own samples", note="takes its own steps")
    rank(picture, RIGHT, TOP, "rank 1", data="own samples", note="takes its own steps")
    between(picture, TOP + 62, PARAMETERS, ["average", "every K steps"],
            dash=True)
    return picture


def hogwild():
    picture = sketch("Hogwild", [
        "One set of parameters lies in shared memory of one host. Every rank reads and",
        "updates it at any time, without locks; nothing else is sent."], HELD + [COPY])
    left, width = 235, 130
    picture.box(left, TOP, width, RANK[1], PLATE, NOTE, 8, dash=True)
    picture.text(WIDTH / 2, TOP + 20, "shared memory", 12, NOTE, "middle")
    for layer in range(LAYERS):
        top = TOP + 32 + 17 * layer
        picture.box(left + 13, top, 104, 13, TINTS[PARAMETERS], PARAMETERS, 2)
        picture.text(WIDTH / 2, top + 10.5, f"layer {layer + 1}", 10, PARAMETERS, "middle")
    for x, inner, outer, name in ((30, 128, left, "rank 0"),
                                  (WIDTH - 128, WIDTH - 128, left + width, "rank 1")):
        picture.box(x, TOP, 98, RANK[1], TINTS[NOTE], NOTE, 8)
        picture.text(x + 12, TOP + 20, name, 13, bold=True)
        picture.box(x + 12, TOP + 32, 36, 64, TINTS[STATE], STATE, 2)
        picture.text(x + 12, TOP + RANK[1] - 9, "own samples", 11, NOTE)
        sign = 1 if x < left else -1
        picture.text((inner + outer) / 2, TOP + 36, "read", 12, PARAMETERS, "middle")
        picture.arrow(outer - 6 * sign, TOP + 44, inner + 6 * sign, TOP + 44, PARAMETERS)
        picture.text((inner + outer) / 2, TOP + 76, "update", 12, PARAMETERS, "middle")
        picture.arrow(inner + 6 * sign, TOP + 84, outer - 6 * sign, TOP + 84, PARAMETERS)
    return picture


def parameter_server():
    picture = sketch("Parameter server", [
        "Rank 0 updates and computes no gradients. Workers push gradients and pull parameters",
        "by RPC: all together, or each when ready (asynchronous)."], HELD + [SUM, COPY])
    rank(picture, LEFT, TOP, "rank 0: server", note="reads no samples")
    for i in range(2):
        top = TOP + 64 * i
        picture.box(RIGHT, top, RANK[0], 56, TINTS[NOTE], NOTE, 8)
        picture.text(RIGHT + 12, top + 20, f"rank {i + 1}", 13, bold=True)
        picture.text(RIGHT + RANK[0] - 12, top + 20, f"batch {i}", 12, NOTE, "end")
        picture.box(RIGHT + 12, top + 30, RANK[0] - 24, 15, TINTS[PARAMETERS], PARAMETERS, 2)
        picture.text(RIGHT + RANK[0] / 2, top + 41.5, "layers 1 to 4", 10, PARAMETERS, "middle")
        picture.arrow(RIGHT - 8, top + 18, LEFT + RANK[0] + 8, top + 18, GRADIENTS)
        picture.text(WIDTH / 2, top + 13, "push", 12, GRADIENTS, "middle", bold=True)
        picture.arrow(LEFT + RANK[0] + 8, top + 44, RIGHT - 8, top + 44, PARAMETERS)
        picture.text(WIDTH / 2, top + 39, "pull", 12, PARAMETERS, "middle", bold=True)
    return picture


def schedule(picture, x, y, *ranks):
    """Which micro-batch each rank computes when: F forward, B backward."""
    cell = 22
    for rank_number, work in enumerate(ranks):
        top = y + 24 * rank_number
        picture.text(x - 8, top + 14, f"rank {rank_number}", 11, NOTE, "end")
        for place, name in enumerate(work.split()):
            color = {"F": ACTIVATIONS, "B": GRADIENTS}.get(name[0])
            if color:
                picture.box(x + cell * place, top, cell, 19, TINTS[color], color, 2)
                picture.text(x + cell * (place + 0.5), top + 14, name, 11, color, "middle")
    end = x + cell * len(ranks[0].split()) + 10
    picture.text(end, y + 14, "time", 11, NOTE)
    picture.arrow(end, y + 22, end + 42, y + 22, NOTE)


def pipeline():
    picture = sketch("Pipeline", [
        "Each rank holds a stage of the layers. Micro-batches pass through: activations",
        "forward (F), their gradients backward (B). Each rank updates its own stage."],
        HELD + [ACROSS, SUM])
    rank(picture, LEFT, 48, "rank 0: stage 0", (0, 1), height=78)
    rank(picture, RIGHT, 48, "rank 1: stage 1", (2, 3), height=78)
    between(picture, 74, ACTIVATIONS, ["activations"], both=False)
    between(picture, 108, GRADIENTS, ["their gradients"], both=False, back=True)
    schedule(picture, 150, 152, "F1 F2 - B1 F3 B2 F4 B3 - B4", "- F1 B1 F2 B2 F3 B3 F4 B4 -")
    picture.text(470, 166, "schedule 1f1b,", 11, NOTE)
    picture.text(470, 182, "4 micro-batches", 11, NOTE)
    return picture


def hybrid():
    picture = sketch("Hybrid: pipeline with replicas", [
        "Each row is a pipeline with its own samples. Ranks that hold the same stage average",
        "its gradients with an all-reduce in every step."], HELD + [ACROSS, SUM])
    for row in range(2):
        top = 42 + 92 * row
        rank(picture, LEFT, top, f"rank {2 * row}", (0, 1), f"batch {row}", height=68)
        rank(picture, RIGHT, top, f"rank {2 * row + 1}", (2, 3), height=68)
        middle = top + 36
        picture.arrow(LEFT + RANK[0] + 8, middle - 6, RIGHT - 8, middle - 6, ACTIVATIONS)
        picture.arrow(RIGHT - 8, middle + 8, LEFT + RANK[0] + 8, middle + 8, GRADIENTS)
        picture.text(WIDTH / 2, middle - 14, f"pipeline, replica {row}", 12, ACTIVATIONS,
                     "middle", bold=True)
    for x in (LEFT, RIGHT):
        picture.arrow(x + RANK[0] / 2, 112, x + RANK[0] / 2, 132, GRADIENTS, both=True)
    picture.text(WIDTH / 2, 126, "all-reduce per stage", 12, GRADIENTS, "middle", bold=True)
    return picture


def layer_box(picture, x, y, width, name, notes, folder, strong=False):
    """A part: its name, its layer and folder, and its purpose."""
    fill, edge = (TINTS[PARAMETERS], PARAMETERS) if strong else (PLATE, NOTE)
    picture.box(x, y, width, 38 + 17 * len(notes), fill, edge, 6)
    picture.text(x + 12, y + 22, name, 14, bold=True)
    picture.text(x + width - 12, y + 22, folder, 11, NOTE, "end", mono=True)
    picture.lines(x + 12, y + 42, notes)


def layers():
    """The parts of a run, from the user to the libraries."""
    picture = Picture(760, 566, "tandem's layers: your program or the command line, then "
                                "trainer, strategy, executor and communicator")
    layer_box(picture, 20, 20, 350, "Command line", [
        "tandem train, compare, scaling, plan, launch, ..."], "9 app", True)
    layer_box(picture, 390, 20, 350, "Your program", [
        "#include <tandem/tandem.h>"], "", True)
    layer_box(picture, 20, 110, 520, "Trainer", [
        "epochs, evaluation, reports, decisions of all ranks"], "8 train", True)
    layer_box(picture, 580, 110, 160, "Checkpoint", ["save, resume"], "7")
    layer_box(picture, 20, 200, 720, "Strategy", [
        "keeps ranks in step: data parallel, local SGD, Hogwild, parameter server, pipeline"],
        "6 parallel", True)
    layer_box(picture, 20, 290, 230, "Executor", [
        "forward and backward: compiled", "(oneDNN, kernels) or eager"], "5 exec", True)
    layer_box(picture, 265, 290, 230, "Optimizer", [
        "updates parameters: SGD,", "Adam, AdamW, Adadelta"], "2 optim")
    layer_box(picture, 510, 290, 230, "Communicator", [
        "shared memory, Gloo, MPI,", "NCCL, threads; RPC"], "2 comm", True)
    for i, (name, note, layer) in enumerate((("Model", "graph, modules, loss", 4),
                                             ("Data", "samplers, loader", 2),
                                             ("Kernels", "AVX2, AVX-512, AMX", 2),
                                             ("Formats", "safetensors, .pt", 2))):
        layer_box(picture, 20 + 184 * i, 378, 168, name, [note], f"{layer} {name.lower()}")
    for i, (name, note, folder) in enumerate((("Settings", "recipes, flags, help", "config"),
                                              ("Arenas", "memory of tensors", "core"),
                                              ("Launcher", "starts ranks", "launch"))):
        layer_box(picture, 20 + 245 * i, 444, 230, name, [note], "1 " + folder)
    layer_box(picture, 20, 510, 720, "Errors, log, files, processes, rendezvous store", [],
              "0 base")
    picture.arrow(195, 77, 195, 108)
    picture.arrow(420, 77, 420, 108)
    picture.text(430, 96, "train()", 11, NOTE, mono=True)
    picture.arrow(560, 77, 560, 198)
    picture.text(570, 96, "DistributedDataParallel", 11, NOTE, mono=True)
    picture.arrow(280, 167, 280, 198)
    for x in (135, 380, 625):
        picture.arrow(x, 257, x, 288)
    return picture


STRATEGIES = {"sequential": sequential, "data-parallel": data_parallel,
              "sharded-update": sharded_update, "averaging": averaging, "hogwild": hogwild,
              "parameter-server": parameter_server, "pipeline": pipeline, "hybrid": hybrid}

