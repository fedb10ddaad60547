/* MPI_Bcast, measured as `spindle bench bulk` measures its own multicast: from the moment in which
 * the root begins until the last receiver has all bytes, by the machine's monotonic clock. The root
 * fills its buffer again before each trial, and receivers compare a checksum after it; neither is
 * timed. Prints one line for each length: receivers, bytes, and the median, slowest and fastest of
 * bytes per second.
 *
 *     mpicc -O2 -o mpi_bcast mpi_bcast.c && mpirun -n 5 ./mpi_bcast TRIALS BYTES...
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void fill(uint64_t *words, size_t count, uint64_t seed) {
    uint64_t state = seed * 0x9e3779b97f4a7c15ull | 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005ull + 1;
        words[i] = state;
    }
}

static uint64_t checksum(const uint64_t *words, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) sum = (sum << 1 | sum >> 63) ^ words[i];
    return sum;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int trials = argc > 1 ? atoi(argv[1]) : 7;
    double *rates = calloc((size_t)trials + 1, sizeof *rates);
    for (int arg = 2; arg < argc; arg++) {
        size_t bytes = (size_t)strtoull(argv[arg], NULL, 10) / 8 * 8, count = bytes / 8;
        uint64_t *words = malloc(bytes ? bytes : 8);
        fill(words, count, (uint64_t)rank + 100);
        /* The first trial touches fresh memory and makes connections, so it does not count. */
        for (int trial = 0; trial <= trials; trial++) {
            if (rank == 0) fill(words, count, (uint64_t)trial + 1);
            uint64_t mine = 0, root = 0;
            if (rank == 0) root = checksum(words, count);
            MPI_Barrier(MPI_COMM_WORLD);
            double begin = now();
            MPI_Bcast(words, (int)count, MPI_UINT64_T, 0, MPI_COMM_WORLD);
            /* The time at which the root is done does not count. */
            double end = rank ? now() : 0, last = 0;
            mine = checksum(words, count);
            MPI_Reduce(&end, &last, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
            MPI_Bcast(&root, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
            if (mine != root) {
                fprintf(stderr, "rank %d has other bytes than the root\n", rank);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
            rates[trial] = (double)bytes / (last - begin);
        }
        if (rank == 0) {
            qsort(rates + 1, (size_t)trials, sizeof *rates, ascending);
            double median = (rates[1 + (trials - 1) / 2] + rates[1 + trials / 2]) / 2;
            printf("%d %zu %.0f %.0f %.0f\n", size - 1, bytes, median, rates[1], rates[trials]);
            fflush(stdout);
        }
        free(words);
    }
    MPI_Finalize();
    return 0;
}
