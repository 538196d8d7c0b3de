"""Decodes, resizes and crops images with Pillow, as tandem/data/images does.

  pillow_peer.py OUT HEIGHT WIDTH MODE FILE...

Writes the pixels of all files to OUT: channels x height x width bytes per image. MODE is
Pillow's name of the channels: L or RGB. A height of 0 keeps the size of the image.
"""
import sys

from PIL import Image

out, height, width, mode = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]


def covering(size):
    if height * size[0] >= width * size[1]:
        return height * size[0] // size[1], height
    return width, width * size[1] // size[0]


with open(out, "wb") as file:
    for path in sys.argv[5:]:
        image = Image.open(path)
        if height > 0:
            resized = covering(image.size)
            image.draft(None, resized)
        image = image.convert(mode)
        if height > 0:
            image = image.resize(resized, Image.BILINEAR)
            left, top = round((resized[0] - width) / 2), round((resized[1] - height) / 2)
            image = image.crop((left, top, left + width, top + height))
        for channel in image.split():
            file.write(channel.tobytes())
