# SPDX-License-Identifier: Apache-2.0
"""Shared by the programs that draw a table. Without matplotlib they draw nothing."""

import argparse


def main(description, draw):
    """draw: makes a figure from the table's lines and pyplot; None: nothing was measured."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("table")
    parser.add_argument("picture")
    args = parser.parse_args()
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib is not here")
        return 0
    matplotlib.use("Agg")
    from matplotlib import pyplot
    with open(args.table, encoding="utf-8") as table:
        figure = draw(table.readlines(), pyplot)
    if not figure:
        print("no plot: nothing was measured")
        return 0
    figure.savefig(args.picture, dpi=110)
    print(f"plot: {args.picture.rsplit('/', 1)[-1]}")
    return 0
