/* Times the same matrix products in-tree and with a BLAS, alternating, in one program.
 *
 * profiler/building/blas.py compiles matmul.c and matmul_cblas.c with the names used here. Each
 * round prints a line with the processor time of all products in nanoseconds, in-tree and with the
 * BLAS. Processor time excludes waiting, so that other programs disturb little.
 */
#define _POSIX_C_SOURCE 199309L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "internal.h"

#define FEWEST_ROUNDS 9
#define MOST_ROUNDS 301
#define ENOUGH_NS 1000000000u

typedef void multiply(jw_index rows, jw_index columns, jw_index depth, float alpha, jw_matrix a,
                      jw_matrix b, float beta, float *c, jw_index c_leading, float *workspace);

multiply jw_matmul_in_tree, jw_matmul_cblas;
jw_index jw_matmul_workspace_in_tree(jw_index columns, jw_index depth);

typedef struct {
    jw_index rows, columns, depth;
    int transposed_a, transposed_b;
} product;

/* Products of small networks, of similar work, so that no product dominates the sum. */
static const product products[] = {
    {16, 1024, 144, 0, 0}, /* convolution 3×3, 16 channels: forward */
    {144, 1024, 16, 1, 0}, /* its input gradient */
    {16, 144, 1024, 0, 1}, /* its parameter gradient */
    {64, 512, 64, 0, 0},   /* convolution 1×1, 64 channels: forward */
    {64, 64, 576, 0, 1},   /* convolution 3×3, 64 channels: parameter gradient */
    {8, 512, 512, 0, 1},   /* linear, batch 8: forward */
    {8, 512, 512, 0, 0},   /* its input gradient */
    {512, 512, 8, 1, 0},   /* its parameter gradient */
    {128, 128, 128, 0, 1}, /* attention scores */
};
enum { COUNT = sizeof products / sizeof products[0] };

static uint64_t read_ns(clockid_t clock) {
    struct timespec now;
    if (clock_gettime(clock, &now) != 0) {
        perror("clock_gettime");
        exit(1);
    }
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static float *allocate(jw_index floats) {
    float *values = malloc((size_t)floats * sizeof(float));
    if (!values) {
        fprintf(stderr, "cannot allocate %zu bytes of memory\n", (size_t)floats * sizeof(float));
        exit(1);
    }
    for (jw_index i = 0; i < floats; i++) {
        values[i] = (float)(i % 61 - 30) / 32.0f;
    }
    return values;
}

static jw_matrix operand(const float *data, jw_index rows, jw_index columns, int transposed) {
    return transposed ? jw_transposed(data, rows) : jw_plain(data, columns);
}

int main(void) {
    jw_index most_a = 0, most_b = 0, most_c = 0, most_workspace = 0;
    for (int i = 0; i < COUNT; i++) {
        const product *p = &products[i];
        const jw_index needed = jw_matmul_workspace_in_tree(p->columns, p->depth);
        most_a = jw_max(most_a, p->rows * p->depth);
        most_b = jw_max(most_b, p->depth * p->columns);
        most_c = jw_max(most_c, p->rows * p->columns);
        most_workspace = jw_max(most_workspace, needed);
    }
    const float *a = allocate(most_a), *b = allocate(most_b);
    float *c = allocate(most_c), *workspace = allocate(most_workspace);

    uint64_t begun_ns = 0;
    for (int round = -1; round < MOST_ROUNDS; round++) { /* round -1 warms up */
        uint64_t spent_ns[2] = {0, 0};
        for (int i = 0; i < 2 * COUNT; i++) {
            const product *p = &products[i / 2];
            const int which = (round + i / 2 + i) & 1; /* which is first alternates */
            const jw_matrix left = operand(a, p->rows, p->depth, p->transposed_a);
            const jw_matrix right = operand(b, p->depth, p->columns, p->transposed_b);
            multiply *run = which ? jw_matmul_cblas : jw_matmul_in_tree;
            const uint64_t start_ns = read_ns(CLOCK_PROCESS_CPUTIME_ID);
            run(p->rows, p->columns, p->depth, 1.0f, left, right, 0.0f, c, p->columns, workspace);
            spent_ns[which] += read_ns(CLOCK_PROCESS_CPUTIME_ID) - start_ns;
        }
        if (round < 0) {
            begun_ns = read_ns(CLOCK_MONOTONIC);
            continue;
        }
        printf("%" PRIu64 " %" PRIu64 "\n", spent_ns[0], spent_ns[1]);
        if (round + 1 >= FEWEST_ROUNDS && read_ns(CLOCK_MONOTONIC) - begun_ns > ENOUGH_NS) {
            break;
        }
    }
    return 0;
}
