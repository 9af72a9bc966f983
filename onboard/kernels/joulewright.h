/* The kernel library: every operation of a training step, float32, C99.
 *
 * Kernels allocate nothing, do no input or output, and have no state: all buffers are passed in.
 * The same objects are profiled and executed. Operands and attributes have the order of the kind's
 * signature in devices/signatures; kernels.h lists the operands and their shapes.
 */
#ifndef JOULEWRIGHT_H
#define JOULEWRIGHT_H

#include <stddef.h>
#include <stdint.h>

#define JW_MAX_ATTRIBUTES 19
#define JW_MAX_OPERANDS 8
#define JW_MAX_SCALARS 6

/* Arguments of a kernel. */
typedef struct {
    const int32_t *attributes; /* as many as the kind's attribute_count */
    const float *scalars;      /* as many as the kind's scalar_count; a seed is a uint32's bits */
    const void *const *reads;  /* buffers of float, or of int32_t for indices */
    void *const *writes;       /* buffers of float; one may be the same as a read buffer where the
                                  signature's in_place allows it; otherwise none overlap */
    void *workspace;           /* at least workspace_bytes, aligned like floats */
} jw_call;

/* A kernel and its interface. */
typedef struct {
    const char *kind; /* for example "conv2d.forward" */
    uint8_t attribute_count;
    uint8_t scalar_count;
    void (*run)(const jw_call *call);
    size_t (*workspace_bytes)(const int32_t *attributes); /* NULL: needs none */
} jw_kernel;

/* All kernels, sorted by kind. */
extern const jw_kernel jw_kernels[];
extern const size_t jw_kernel_count;

/* The kernel of a kind, or NULL. */
const jw_kernel *jw_find_kernel(const char *kind);

/* How this build computes matrix products: "in-tree" or "cblas". */
extern const char *const jw_matmul_name;

#endif
