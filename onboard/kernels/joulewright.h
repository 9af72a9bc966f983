/* The kernel library: every operation of a training step, float32, C99.
 *
 * No allocation, no input or output, no state: every buffer is passed in. The same objects are
 * microbenchmarked and executed. Operands and attributes stand in the order of the signature of the
 * kind in devices/operation.py; layouts are described there.
 */
#ifndef JOULEWRIGHT_H
#define JOULEWRIGHT_H

#include <stddef.h>
#include <stdint.h>

#define JW_MAX_ATTRIBUTES 16
#define JW_MAX_OPERANDS 8
#define JW_MAX_SCALARS 4

typedef struct {
    const int32_t *attributes; /* attribute_count of the kind */
    const float *scalars;      /* scalar_count of the kind; a seed is the bits of a uint32 */
    const void *const *reads;  /* read_count buffers of float, or int32_t for indices */
    void *const *writes;       /* write_count buffers; may equal a read one where the signature's
                                  in_place says so, and overlap nothing otherwise */
    void *workspace;           /* at least workspace_bytes, aligned as floats are */
} jw_call;

typedef struct {
    const char *kind; /* "conv2d.forward" */
    uint8_t attribute_count;
    uint8_t scalar_count;
    void (*run)(const jw_call *call);
    size_t (*workspace_bytes)(const int32_t *attributes); /* NULL: none needed */
} jw_kernel;

/* Sorted by kind. */
extern const jw_kernel jw_kernels[];
extern const size_t jw_kernel_count;

/* The kernel of a kind, or NULL. */
const jw_kernel *jw_find_kernel(const char *kind);

/* "in-tree" or "cblas": what computes matrix products in this build. */
extern const char *const jw_matmul_name;

#endif
