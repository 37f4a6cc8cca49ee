#!/usr/bin/env python3
"""Render installed fonts into an image classification set: 100 characters, 32x32 colour, CIFAR-100's format.

Each font family gives one image of each character, with its own size, turn, shift and colours. A family is
either in the training or in the test set, so what is tested is new shapes. The same fonts, paths, versions of
Pillow and numpy, and arguments give the same bytes. Train on it with `ssn train --data glyphs:OUT`.
"""
import argparse
import collections
import gzip
import os
import random
import subprocess
import sys

try:
    import numpy as np
    from PIL import Image, ImageDraw, ImageFont
except ImportError as missing:
    sys.exit(f"make_glyphs: {missing}: install Debian's python3-pil and python3-numpy")

SIDE = 32
# The superclasses of CIFAR-100's coarse label, in order of the classes.
GROUPS = [
    "abcdefghijklmnopqrstuvwxyz",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "0123456789",
    "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
    "éöñß£©",
]
CLASSES = [(coarse, character) for coarse, group in enumerate(GROUPS) for character in group]
NOT_LETTERS = ("emoji", "symbol", "icon", "braille", "music", "dingbat")  # in a family's name


def font_families():
    """Family name -> font files, in fontconfig's order."""
    command = ["fc-list", ":lang=en", "family", "file"]
    try:
        listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except FileNotFoundError:
        sys.exit("make_glyphs: fc-list is missing: install Debian's fontconfig")
    except subprocess.CalledProcessError as error:
        sys.exit(f"make_glyphs: {' '.join(command)} failed with {error.returncode}: {error.stderr.strip()}")
    families = collections.defaultdict(list)
    for line in listing.splitlines():
        path, names = line.split(": ", 1)
        name = names.split(",")[0].split(":")[0].strip()
        if path.lower().endswith((".ttf", ".otf")) and not any(word in name.lower() for word in NOT_LETTERS):
            families[name].append(path)
    return families


def usable(path):
    """Whether the font opens and draws these characters, each in its own way."""
    try:
        font = ImageFont.truetype(path, 24)
        masks = [font.getmask(character) for character in "aGg7Q&é"]
    except Exception:  # Pillow raises many types for broken fonts
        return False
    shapes = {(mask.size, bytes(mask)) for mask in masks}
    return len(shapes) == len(masks) and all(mask.size[0] > 0 for mask in masks)


def draw(path, character, rng):
    """Ink in 0..1, (SIDE, SIDE): the character near the middle, a little turned and shifted."""
    font = ImageFont.truetype(path, rng.randint(18, 26))
    canvas = Image.new("L", (2 * SIDE, 2 * SIDE), 0)
    context = ImageDraw.Draw(canvas)
    left, _, right, _ = context.textbbox((0, 0), character, font=font)
    ascent, descent = font.getmetrics()
    context.text((SIDE - (left + right) / 2, SIDE - (ascent + descent) / 2), character, fill=255, font=font)
    canvas = canvas.rotate(rng.uniform(-12, 12), resample=Image.BILINEAR)
    dx, dy = rng.randint(-2, 2), rng.randint(-2, 2)
    x, y = SIDE // 2 + dx, SIDE // 2 + dy
    return np.asarray(canvas.crop((x, y, x + SIDE, y + SIDE)), np.float32) / 255


def colour(ink, colours):
    """Planes u8 (3, SIDE, SIDE): dark ink on a light ground with a slight slope, in steps of 8."""
    def pick():
        return 0.35 * colours.rand(3), 0.65 + 0.35 * colours.rand(3)

    dark, light = pick()
    while abs(dark - light).sum() < 0.6:
        dark, light = pick()
    x, y = np.meshgrid(np.linspace(-1, 1, SIDE), np.linspace(-1, 1, SIDE))
    ground = light[:, None, None] + 0.05 * (colours.randn(3, 1, 1) * x + colours.randn(3, 1, 1) * y)
    image = ink[None] * dark[:, None, None] + (1 - ink[None]) * ground
    return (np.clip(image, 0, 1) * 255).astype(np.uint8) >> 3 << 3


def make_records(families, names, count, rng, colours):
    """The records of the next `count` families of the iterator `names` that are usable."""
    records, used = [], 0
    while used < count:
        name = next(names, None)
        if name is None:
            return None
        files = [path for path in families[name] if usable(path)]
        if not files:
            continue
        used += 1
        for label, (coarse, character) in enumerate(CLASSES):
            planes = colour(draw(rng.choice(files), character, rng), colours)
            records.append(bytes([coarse, label]) + planes.tobytes())
    rng.shuffle(records)
    return records


def write(path, content):
    """Under a temporary name first, so that there is never half a file."""
    with open(path + ".part", "wb") as file:
        file.write(content)
    os.replace(path + ".part", path)


def whole_number(least):
    """An argument's type: an integer from `least` to 2^32 - 1."""
    def parse(text):
        value = int(text) if text.isdecimal() else -1
        if not least <= value < 2**32:
            raise argparse.ArgumentTypeError(f"expected {least} to 2^32 - 1, found '{text}'")
        return value

    return parse


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", metavar="OUT",
                        help="directory for train.bin, test.bin and fine_label_names.txt")
    parser.add_argument("--seed", type=whole_number(0), default=7, metavar="N",
                        help="of all choices (default: %(default)s)")
    parser.add_argument("--train-families", type=whole_number(1), default=100, metavar="N",
                        help="font families for training (default: %(default)s)")
    parser.add_argument("--test-families", type=whole_number(1), default=25, metavar="N",
                        help="font families for test (default: %(default)s)")
    parser.add_argument("--gzip", action="store_true", help="write train.bin.gz and test.bin.gz")
    return parser.parse_args()


def make_sets(seed, train_families, test_families):
    """The records of both parts, by name."""
    rng, colours = random.Random(seed), np.random.RandomState(seed)
    families = font_families()
    names = sorted(families)
    rng.shuffle(names)
    order = iter(names)
    sets = {}
    for part, count in (("test", test_families), ("train", train_families)):
        sets[part] = make_records(families, order, count, rng, colours)
        if sets[part] is None:
            sys.exit(f"make_glyphs: of {len(names)} installed font families with Latin letters, fewer than "
                     f"the {train_families + test_families} asked for are usable: install more of Debian's "
                     "fonts-* packages, or ask for fewer families")
    return sets


def main():
    arguments = parse_arguments()
    try:
        os.makedirs(arguments.out, exist_ok=True)
        sets = make_sets(arguments.seed, arguments.train_families, arguments.test_families)
        for part, records in sets.items():
            content = b"".join(records)
            path = os.path.join(arguments.out, part + ".bin")
            if arguments.gzip:
                write(path + ".gz", gzip.compress(content, mtime=0))
            else:
                write(path, content)
        labels = "".join(character + "\n" for _, character in CLASSES)
        write(os.path.join(arguments.out, "fine_label_names.txt"), labels.encode())
    except OSError as error:
        sys.exit(f"make_glyphs: {error.filename}: {error.strerror}")
    print(f"{len(sets['train'])} training and {len(sets['test'])} test images of {len(CLASSES)} characters "
          f"in {arguments.out}")


if __name__ == "__main__":
    main()
