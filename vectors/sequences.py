#!/usr/bin/env python3
"""Makes the worked sequences in vectors/sequences and checks them, without any code of the Rust crates.

    python3 vectors/sequences.py            makes them again and compares; exit code 1 and one line for each difference
    python3 vectors/sequences.py --write    writes the files, then checks
    python3 vectors/sequences.py --show ID  what the judge sees in one sequence: clauses exercised and broken

Scenes are in seqgen/scenes, the rules of form in seqgen/form.py, and the rules that sequences are judged by in seqgen/judge. The
judge reads what stands in the files and shares no code with the scenes.
"""

import json
import pathlib
import sys

from seqgen import form, judge, scenes
from seqgen.finish import finish

FOLDER = pathlib.Path(__file__).resolve().parent / "sequences"


def text(subject, sequences):
    """The file of one subject: one line for each step, so that a change shows where it is."""
    lines = ['{', '"$schema": "../sequences.schema.json",', '"format": "metaroce-sequences/1",',
             f'"subject": {json.dumps(subject)},', '"sequences": [']
    for n, sequence in enumerate(sequences):
        lines.append("{")
        for key, value in sequence.items():
            if key == "steps":
                lines.append('"steps": [')
                lines += [json.dumps(step) + ("," if i + 1 < len(value) else "") for i, step in enumerate(value)]
                lines.append("]")
            else:
                lines.append(f"{json.dumps(key)}: {json.dumps(value)},")
        lines.append("}" + ("," if n + 1 < len(sequences) else ""))
    return "\n".join(lines + ["]", "}"]) + "\n"


def main(arguments):
    made = {subject: [finish(scene) for scene in scene_maker()] for subject, scene_maker in scenes.subjects().items()}
    if arguments[:1] == ["--show"] and len(arguments) == 2:
        for sequence in sum(made.values(), []):
            if sequence["id"] == arguments[1]:
                exercised, broken = judge.judge(sequence)
                print("exercised:", *sorted(exercised), "\nbroken:", broken)
                return 0
        sys.exit(f"no such sequence: {arguments[1]}")
    if arguments not in ([], ["--write"]):
        sys.exit("arguments: none, --write, or --show ID")
    faults, right, wrong = [], 0, 0
    FOLDER.mkdir(exist_ok=True)
    for subject, sequences in made.items():
        path, wanted = FOLDER / f"{subject}.json", text(subject, sequences)
        if "--write" in arguments:
            path.write_text(wanted)
        if not path.exists() or path.read_text() != wanted:
            faults.append(f"{path.name} is not what the scenes give")
        else:
            sequences = json.loads(path.read_text())["sequences"]
        for sequence in sequences:
            right, wrong = right + ("base" not in sequence), wrong + ("base" in sequence)
            faults += [f"{path.name}: {sequence['id']}: {problem}" for problem in form.problems(sequence)]
    strangers = {path.stem for path in FOLDER.glob("*.json")} - made.keys()
    faults += [f"{name}.json has no scene" for name in sorted(strangers)]
    print(*faults, sep="\n", end="\n" if faults else "")
    print(f"{right} right and {wrong} wrong sequences, {len(faults)} faults")
    return 1 if faults or not right else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
