/* Runs kernels on buffers of exactly each operand's size, so that a sanitizer detects every access
 * beyond one. Reads from standard input until its end:
 *
 *   kind in_place attribute_count attribute... scalar_count scalar_bits...
 *   read_count (elements index_bound shared)... write_count (elements)...
 *
 * index_bound is 0 for float operands; shared is the number of the write that takes over this read,
 * or -1, and applies only where in_place is 1. */
#include "joulewright.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long next(void) {
    long value;
    if (scanf("%ld", &value) != 1) {
        fputs("malformed input\n", stderr);
        exit(2);
    }
    return value;
}

static void *allocate(size_t bytes) {
    void *buffer = NULL;
    if (bytes > 0 && posix_memalign(&buffer, 64, bytes) != 0) {
        exit(2);
    }
    return buffer;
}

int main(void) {
    char kind[64];
    while (scanf("%63s", kind) == 1) {
        const jw_kernel *kernel = jw_find_kernel(kind);
        int32_t attributes[JW_MAX_ATTRIBUTES];
        float scalars[JW_MAX_SCALARS];
        void *reads[JW_MAX_OPERANDS], *writes[JW_MAX_OPERANDS] = {NULL};
        int taken[JW_MAX_OPERANDS] = {0};
        const int in_place = (int)next();
        const long attribute_count = next();
        for (long i = 0; i < attribute_count; i++) {
            attributes[i] = (int32_t)next();
        }
        const long scalar_count = next();
        for (long i = 0; i < scalar_count; i++) {
            const uint32_t bits = (uint32_t)next();
            memcpy(&scalars[i], &bits, sizeof bits);
        }
        const long read_count = next();
        for (long r = 0; r < read_count; r++) {
            const long elements = next(), bound = next(), shared = next();
            float *values = reads[r] = allocate((size_t)elements * 4);
            int32_t *indices = reads[r];
            for (long i = 0; i < elements; i++) {
                if (bound > 0) {
                    indices[i] = (int32_t)(i * 7919 % bound);
                } else {
                    values[i] = (float)(i % 101 + 1) / 64.0f;
                }
            }
            if (in_place && shared >= 0) {
                writes[shared] = reads[r];
                taken[r] = 1;
            }
        }
        const long write_count = next();
        for (long w = 0; w < write_count; w++) {
            const long elements = next();
            if (!writes[w]) {
                writes[w] = allocate((size_t)elements * 4);
            }
        }
        void *workspace =
            allocate(kernel->workspace_bytes ? kernel->workspace_bytes(attributes) : 0);
        const jw_call call = {attributes, scalars, (const void *const *)reads, writes, workspace};
        kernel->run(&call);
        for (long r = 0; r < read_count; r++) {
            if (!taken[r]) {
                free(reads[r]);
            }
        }
        for (long w = 0; w < write_count; w++) {
            free(writes[w]);
        }
        free(workspace);
    }
    return 0;
}
