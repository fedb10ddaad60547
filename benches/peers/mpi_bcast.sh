#!/usr/bin/env bash
# Compares Spindle's block multicast with Open MPI's MPI_Bcast, over TCP on the loopback device and
# in shared memory, in turns.
#
#   benches/peers/mpi_bcast.sh [RECEIVERS [BYTES [TRIALS]]]        default: "4 8 16" "1048576 16777216 67108864 268435456" 7
#
# Needs Debian's openmpi-bin, libopenmpi-dev and python3, and the command:
# cargo build --release -p spindle-cli. The variable SPINDLE names another command.
#
# Each line: fabric, receivers, bytes, then GB/s (the object's bytes over the time until the last
# receiver has it, medians) of Spindle and of MPI_Bcast, and the ratio. Over shm MPI_Bcast leaves a
# copy at each receiver. Spindle's receivers read the root's memory: "shm" is until each has read
# all bytes, "shm-copied" until each has copied them to memory of its own.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
receivers=${1:-4 8 16} sizes=${2:-1048576 16777216 67108864 268435456} trials=${3:-7}
target=${CARGO_TARGET_DIR:-$here/../../target}
spindle=${SPINDLE:-$target/release/spindle}
for tool in mpicc mpirun python3 "$spindle"; do
    command -v "$tool" > /dev/null || { echo "$tool is missing: see the head of $0" >&2; exit 2; }
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mpicc -O2 -o "$scratch/mpi_bcast" "$here/mpi_bcast.c"

# Options of Open MPI for a machine with fewer cores than ranks, and for root in a container.
mpi() {
    local ranks=$1
    shift
    mpirun --allow-run-as-root --oversubscribe -n "$ranks" "$@"
}

# Prints the GB/s of one field of the only run in the report.
field() {
    python3 -c 'import json, sys; print(json.load(sys.stdin)["runs"][0][sys.argv[1]] / 1e9)' "$1"
}

row() {
    python3 -c 'import sys
name, receivers, size, ours, theirs = sys.argv[1:]
print(f"{name:<12}{receivers:>10}{size:>12}{float(ours):>10.3f}{float(theirs):>10.3f}{float(ours) / float(theirs):>8.2f}")' "$@"
}

printf '%-12s%10s%12s%10s%10s%8s\n' fabric receivers bytes spindle mpi ratio
for n in $receivers; do
    for bytes in $sizes; do
        bench=(bench bulk --members $((n + 1)) --bytes "$bytes" --trials "$trials" --json)
        ours=$("$spindle" "${bench[@]}" --fabric tcp | field bytes_per_second)
        theirs=$(mpi $((n + 1)) --mca btl tcp,self --mca btl_tcp_if_include lo "$scratch/mpi_bcast" "$trials" "$bytes" \
            | awk '{ print $3 / 1e9 }')
        row tcp "$n" "$bytes" "$ours" "$theirs"
        "$spindle" "${bench[@]}" --fabric shm > "$scratch/shm.json"
        theirs=$(mpi $((n + 1)) "$scratch/mpi_bcast" "$trials" "$bytes" | awk '{ print $3 / 1e9 }')
        row shm "$n" "$bytes" "$(field bytes_per_second < "$scratch/shm.json")" "$theirs"
        row shm-copied "$n" "$bytes" "$(field copied_bytes_per_second < "$scratch/shm.json")" "$theirs"
    done
done
