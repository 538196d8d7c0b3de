"""Compares tandem's decoding and resizing of JPEG files with Pillow and torchvision.

  images.py make FOLDER [COUNT [WIDTH]]  writes COUNT JPEG files (default 20,000) to
                                         FOLDER/class-0 to FOLDER/class-9; the width is
                                         500 pixels by default, the height 3/4 of it
  images.py compare FOLDER PROGRAM       prints images per second of CPU time on one core;
                                         PROGRAM is build/release/bin/bench_image_folder

Each image is resized, so that its shorter side has 224 or 112 pixels, and its center is
cropped. The peers run in turn with tandem, on the same files; medians of 7 rounds. Needs
numpy and Pillow; a peer that is not installed is left out.
"""
import os
import statistics
import subprocess
import sys
import time

import numpy
from PIL import Image

ROUNDS, FILES, DISTINCT = 7, 200, 500


def make(folder, count, width):
    """Writes pictures of smooth noise and texture. Every DISTINCT files are equal."""
    random = numpy.random.default_rng(1)
    written = []
    for i in range(count):
        path = f"{folder}/class-{i % 10}"
        os.makedirs(path, exist_ok=True)
        if i < DISTINCT:
            height = width * 3 // 4
            picture = numpy.zeros((height, width, 3))
            for rows, scale in ((4, 110), (16, 50), (64, 25), (375, 9)):
                noise = random.normal(size=(rows, rows * 4 // 3, 3)) * 64 + 128
                noise = Image.fromarray(noise.clip(0, 255).astype(numpy.uint8))
                noise = numpy.asarray(noise.resize((width, height), Image.BICUBIC), float)
                picture += (noise - 128) / 64 * scale
            image = Image.fromarray((picture + 128).clip(0, 255).astype(numpy.uint8))
            image.save(f"{path}/{i}.jpg", quality=90)
            written.append(open(f"{path}/{i}.jpg", "rb").read())
        else:
            with open(f"{path}/{i}.jpg", "wb") as file:
                file.write(written[i % DISTINCT])


def pillow(path, side, draft=False):
    image = Image.open(path)
    width, height = image.size
    shorter = min(width, height)
    resized = (side * width // shorter, side * height // shorter)
    if draft:
        image.draft("RGB", resized)
    image = image.convert("RGB").resize(resized, Image.BILINEAR)
    left, top = round((resized[0] - side) / 2), round((resized[1] - side) / 2)
    return numpy.asarray(image.crop((left, top, left + side, top + side)))


def torchvision_reader():
    import torch
    import torchvision
    from torchvision.transforms.v2 import functional
    torch.set_num_threads(1)

    def read(path, side):
        image = torchvision.io.decode_jpeg(torchvision.io.read_file(path))
        image = functional.resize(image, [side], antialias=True)
        return functional.center_crop(image, [side, side])
    return read


def rate(read, files, side):
    begin = time.process_time()
    for path in files:
        read(path, side)
    return len(files) / (time.process_time() - begin)


def compare(folder, program):
    files = [entry.path for entry in os.scandir(f"{folder}/class-0")][:FILES]
    peers = {
        "tandem": lambda side: float(subprocess.run(
            [program, "decode", str(side), *files],
            check=True, capture_output=True).stdout),
        "Pillow": lambda side: rate(pillow, files, side),
        "Pillow with draft()": lambda side: rate(
            lambda path, side: pillow(path, side, True), files, side)}
    try:
        reader = torchvision_reader()
        peers["torchvision.io"] = lambda side: rate(reader, files, side)
    except ImportError as error:
        print(f"without torchvision: {error}")
    for side in (224, 112):
        rates = {name: [] for name in peers}
        for _ in range(ROUNDS):
            for name, run in peers.items():
                rates[name].append(run(side))
        for name, values in rates.items():
            print(f"{side} x {side}  {name:20} {statistics.median(values):7.0f} images/s "
                  f"({min(values):.0f} to {max(values):.0f})")


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "make":
        count, width = [int(text) for text in sys.argv[3:]] + [20_000, 500][len(sys.argv) - 3:]
        make(sys.argv[2], count, width)
    elif len(sys.argv) == 4 and sys.argv[1] == "compare":
        compare(sys.argv[2], sys.argv[3])
    else:
        sys.exit(__doc__)
