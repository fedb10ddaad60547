#!/bin/sh
# Runs a command as one task of a parallel job, with the settings of a group of all tasks of that job in
# its environment:
#
#   srun --ntasks=8 deploy/cluster/with-group.sh spindle member --config job.toml
#   mpirun -np 8 -x HOSTS=node1,node2 deploy/cluster/with-group.sh spindle member --config job.toml
#
# Slurm reports the hosts of the job; for mpirun (Open MPI, MPICH) HOSTS names them. Tasks on one host share
# memory, and if all tasks are on one host no network is set up. Variables that are already set stay:
# SPINDLE_GROUP_NAME, for instance. PORT is the first port; each further task of a host takes the next one.
set -eu

fail() {
    echo "error: $0: $1" >&2
    exit 2
}

[ $# -gt 0 ] || fail "name a command to run, such as: spindle member"

if [ -n "${SLURM_PROCID:-}" ]; then
    size=$SLURM_NTASKS local=$SLURM_LOCALID job=slurm-$SLURM_JOB_ID
    hosts=$(scontrol show hostnames "${SLURM_STEP_NODELIST:-$SLURM_JOB_NODELIST}") || fail "scontrol can't tell the hosts of the job"
elif [ -n "${OMPI_COMM_WORLD_SIZE:-}" ]; then
    size=$OMPI_COMM_WORLD_SIZE local=$OMPI_COMM_WORLD_LOCAL_RANK job=mpi-${PMIX_NAMESPACE:-job}
    hosts=$(echo "${HOSTS:-}" | tr ',' '\n')
    [ -n "$hosts" ] || [ "$OMPI_COMM_WORLD_LOCAL_SIZE" = "$size" ] || fail "the tasks are on several hosts: name them, mpirun -x HOSTS=a,b"
elif [ -n "${PMI_SIZE:-}" ]; then
    size=$PMI_SIZE local=${MPI_LOCALRANKID:-0} job=mpi-${PMI_ID:-job}
    hosts=$(echo "${HOSTS:-}" | tr ',' '\n')
    [ -n "$hosts" ] || [ "${MPI_LOCALNRANKS:-$size}" = "$size" ] || fail "the tasks are on several hosts: name them, HOSTS=a,b"
else
    fail "this is no task of a job; start it with srun or mpirun"
fi

# Letters, digits, `.`, `_` and `-`, which the name of a group may contain.
job=$(printf %s "$job" | tr -c 'A-Za-z0-9._-' '-' | cut -c1-64)
export SPINDLE_GROUP_NAME="${SPINDLE_GROUP_NAME:-$job}"
export SPINDLE_GROUP_FOUNDERS="${SPINDLE_GROUP_FOUNDERS:-$size}"

if [ "$(printf '%s\n' "$hosts" | sort -u | grep -c .)" -gt 1 ]; then
    port=${PORT:-7411}
    own=$((port + local))
    # The first three hosts are enough as seeds; each has a task with the first port.
    seeds=$(printf '%s\n' "$hosts" | awk '!seen[$0]++' | head -n 3 | sed "s/\$/:$port/" | paste -s -d, -)
    export SPINDLE_NETWORK_LISTEN="${SPINDLE_NETWORK_LISTEN:-0.0.0.0:$own}"
    export SPINDLE_NETWORK_ADVERTISE="${SPINDLE_NETWORK_ADVERTISE:-${SLURMD_NODENAME:-$(hostname)}:$own}"
    export SPINDLE_NETWORK_SEEDS="${SPINDLE_NETWORK_SEEDS:-$seeds}"
fi

exec "$@"
