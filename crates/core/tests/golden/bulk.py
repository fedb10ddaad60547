#!/usr/bin/env python3
"""Writes bulk.txt: digests of the binomial pipeline as an independent oracle has it.

    bulk.py ORACLE > bulk.txt

ORACLE prints with `--dump N K` one line `n k step from to block` for each block that is sent among N members in an object of K
blocks. Every line of bulk.txt is `members first-last transfers digest`; the digest is FNV-1a, 64 bits, over step, from, to and block
of all that is sent of objects with `first` to `last` blocks, as words of 32 bits, little-endian, ordered by blocks, step and sender.
"""
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

LARGE = (65, 100, 127, 128, 129, 200, 255, 256, 257, 300, 511, 512)


def transfers(members, blocks):
    command = [sys.executable, sys.argv[1], "--dump", str(members), str(blocks)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return sorted(tuple(map(int, line.split()[2:])) for line in lines)


def line(case):
    members, first, last = case
    count, digest = 0, 0xCBF29CE484222325
    for blocks in range(first, last + 1):
        for transfer in transfers(members, blocks):
            count += 1
            for byte in struct.pack("<4I", *transfer):
                digest = (digest ^ byte) * 0x100000001B3 % (1 << 64)
    return f"{members} {first}-{last} {count} {digest:016x}"


cases = [(n, 1, 50) for n in range(2, 65)] + [(n, k, k) for n in LARGE for k in (1, 2, 3, 7, 50)]
with ThreadPoolExecutor(2) as pool:
    for text in pool.map(line, cases):
        print(text, flush=True)
