"""Sentences with a tag for every word, in columns: a word a line, its tag last, an empty line between sentences."""

from pathlib import Path

import numpy as np

from longwave.errors import UserError

SPLITS = {"train": ("train",), "valid": ("valid", "dev", "val", "testa"), "test": ("test", "testb")}
ENDINGS = (".txt", ".conll", ".tsv", ".bio", "")
Sentence = list[tuple[str, str]]  # words with their tags


def read(where: str) -> dict[str, list[Sentence]]:
    """From a folder with train.txt, valid.txt and test.txt (or .conll, .tsv); dev.txt will do for valid.txt."""
    folder = Path(where).expanduser()
    found = {}
    for split, names in SPLITS.items():
        files = [folder / f"{name}{ending}" for name in names for ending in ENDINGS]
        there = [file for file in files if file.is_file()]
        if not there:
            raise UserError(f"there is no {split}.txt in {folder}: a word a line, its tag last, an empty line between "
                            "sentences")  # fmt: skip
        found[split] = _sentences(there[0])
    return found


def _sentences(file: Path) -> list[Sentence]:
    found: list[Sentence] = [[]]
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            cells = line.split("\t") if "\t" in line else line.split()
            cells = [cell.strip() for cell in cells]
            if not any(cells):
                found.append([])
            elif cells[0] != "-DOCSTART-" and not (line.startswith("#") and "\t" not in line):
                if len(cells) < 2:
                    raise UserError(f"{file}, line {number}: {cells[0]!r} has no tag behind it")
                found[-1].append((cells[0], cells[-1]))
    found = [sentence for sentence in found if sentence]
    if not found:
        raise UserError(f"{file} is empty")
    return found


def made(count: int, seed: int) -> list[Sentence]:
    """A language made here: nouns begin with a vowel, verbs with other letters; what follows "not" is the opposite."""
    random = np.random.default_rng(seed)
    found: list[Sentence] = []
    for _ in range(count):
        sentence: Sentence = []
        for _ in range(int(random.integers(2, 8))):
            if random.random() < 0.25:
                sentence.append(("not", "particle"))
            word = "".join(chr(97 + i) for i in random.integers(26, size=int(random.integers(2, 6))))
            reverse = bool(sentence) and sentence[-1][0] == "not"
            sentence.append((word, "noun" if (word[0] in "aeiou") != reverse else "verb"))
        found.append(sentence)
    return found
