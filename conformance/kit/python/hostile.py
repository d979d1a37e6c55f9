#!/usr/bin/env python3
"""What no honest peer sends, against another implementation behind its adapter: one small script per rule.

    python3 hostile.py --adapter 'path/to/adapter' [--only NAME]

Each script sets up a connection of its own with hand-made packets, does something that the specification answers in one
way only, and looks at what comes. It prints one line for each, and ends with 1 if any rule was broken.
"""

import argparse
import subprocess
import sys
import traceback

import hostile_scripts
from metaroce.tester import Adapter, Broken, Tester


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--adapter", required=True)
    parser.add_argument("--only")
    options = parser.parse_args()
    failures = ran = 0
    for function, settings in hostile_scripts.SCRIPTS:
        name = function.__name__
        if options.only and options.only not in name:
            continue
        ran += 1
        adapter = Adapter(options.adapter)
        tester = None
        try:
            tester = Tester(adapter, **settings)
            function(tester)
            print(f"good    {name}: {function.__doc__.splitlines()[0]}", flush=True)
        except Broken as broken:
            failures += 1
            print(f"BROKEN  {name}: {function.__doc__.splitlines()[0]}: {str(broken)[:700]}", flush=True)
        except Exception:
            failures += 1
            print(f"ERROR   {name}: {traceback.format_exc()}", flush=True)
        finally:
            if tester is not None:
                tester.close()
            adapter.process.stdin.close()
            try:
                adapter.process.wait(5)
            except subprocess.TimeoutExpired:
                adapter.process.kill()
                failures += 1
                print(f"ERROR   {name}: the adapter does not end with its input", flush=True)
    if not ran:
        print(f"there is no script {options.only!r}", file=sys.stderr)
        return 2
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
