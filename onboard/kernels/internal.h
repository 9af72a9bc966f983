/* Shared by the kernels: matrix product, windows, deterministic sums. */
#ifndef JW_INTERNAL_H
#define JW_INTERNAL_H

#include "joulewright.h"

#include <math.h>
#include <string.h>

/* Index into a buffer; signed, since window arithmetic has negative intermediate results. */
typedef ptrdiff_t jw_index;

/* a * b + c with one rounding where the machine has the instruction. Chosen here and not by
 * -ffp-contract, so that vector bodies and scalar remainders of a loop round alike. */
#if defined(FP_FAST_FMAF) || defined(__FP_FAST_FMAF) /* some math.h lack the former */
#define JW_FMA(a, b, c) fmaf((a), (b), (c))
#else
#define JW_FMA(a, b, c) ((a) * (b) + (c))
#endif

/* Precedes a loop in which no written element depends on an element read in another iteration. That
 * holds if the buffers do not overlap, and if they are the same, as in calls in place. */
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* the machine may have no vectors */
#define JW_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define JW_INDEPENDENT _Pragma("GCC ivdep")
#else
#define JW_INDEPENDENT
#endif

/* Precedes a function that is not inlined, so that its caller's calls need less stack. */
#if defined(__GNUC__)
#define JW_APART __attribute__((noinline))
#else
#define JW_APART
#endif

/* 1: small tiles, for machines with small memories. */
#ifndef JW_SMALL_MEMORY
#if defined(__ARM_ARCH_PROFILE) && __ARM_ARCH_PROFILE == 'M'
#define JW_SMALL_MEMORY 1
#else
#define JW_SMALL_MEMORY 0
#endif
#endif

static inline float jw_float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t jw_bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline jw_index jw_min(jw_index a, jw_index b) {
    return a < b ? a : b;
}

static inline jw_index jw_max(jw_index a, jw_index b) {
    return a > b ? a : b;
}

static inline jw_index jw_ceil_div(jw_index a, jw_index b) {
    return (a + b - 1) / b;
}

/* Floats rounded up to whole 64-byte cache lines, for the parts of a workspace. */
static inline jw_index jw_padded(jw_index floats) {
    return jw_ceil_div(floats, 16) * 16;
}

/* --- matrix product: in matmul.c or matmul_cblas.c -------------------------------------------- */

/* A row-major matrix or its transpose. */
typedef struct {
    const float *data;
    jw_index leading; /* floats from one stored row to the next */
    int transposed;
} jw_matrix;

/* The matrix stored at `data`, and the transpose of that matrix. */
static inline jw_matrix jw_plain(const float *data, jw_index leading) {
    const jw_matrix matrix = {data, leading, 0};
    return matrix;
}

static inline jw_matrix jw_transposed(const float *data, jw_index leading) {
    const jw_matrix matrix = {data, leading, 1};
    return matrix;
}

/* c[rows, columns] = alpha * a[rows, depth] * b[depth, columns] + beta * c. c must not overlap a or
 * b. With beta == 0, c is not read. c_leading: floats from one row of c to the next. */
void jw_matmul(jw_index rows, jw_index columns, jw_index depth, float alpha, jw_matrix a,
               jw_matrix b, float beta, float *c, jw_index c_leading, float *workspace);

/* c[rows, columns] = a[rows, depth] * b[depth, columns], added to c if `continues`. Each element is
 * one chain of additions in the order of depth, which goes on from c: products of parts of the
 * depth, one after the other, give the bits of the whole product. (A BLAS promises no order.)
 * jw_matmul adds up long chains in blocks, which rounds less. */
void jw_matmul_chained(jw_index rows, jw_index columns, jw_index depth, jw_matrix a, jw_matrix b,
                       int continues, float *c, jw_index c_leading, float *workspace);

/* Floats of workspace that both products need; does not decrease with either argument. */
jw_index jw_matmul_workspace(jw_index columns, jw_index depth);

/* Filters of a convolution, seen from its output: a[row, channel * taps + tap] is the weight from
 * input channel `row` to output channel `channel` at tap taps - 1 - tap. `leading`: floats from one
 * output channel to the next; `most`: output channels of the largest product. */
typedef struct {
    const float *data;
    jw_index leading, taps, most;
} jw_filters;

/* Prepare the workspace of all products with filters that differ in nothing but where they begin. */
void jw_flip(jw_filters a, float *workspace);

/* jw_matmul_chained with such filters as its left matrix, for `channels` output channels. */
void jw_matmul_flipped(jw_index rows, jw_index columns, jw_index channels, jw_filters a,
                       jw_matrix b, int continues, float *c, jw_index c_leading, float *workspace);
jw_index jw_flipped_workspace(jw_index rows, jw_index columns, jw_index depth);

/* b[depth, columns] as the right matrix of many products, in the layout that suits them. */
typedef struct {
    jw_matrix b;
    jw_index columns, depth;
    float *panels;
} jw_prepared;

/* Lay out `b` in `workspace`, which has jw_prepared_floats. Both are in use as long as the result.
 * `transposed`: whether b is. */
jw_prepared jw_prepare(jw_index columns, jw_index depth, jw_matrix b, float *workspace);
jw_index jw_prepared_floats(jw_index columns, jw_index depth, int transposed);

/* c[rows, columns] = a[rows, depth] * b + beta * c, as jw_matmul. Meant for few rows. */
void jw_matmul_prepared(jw_index rows, jw_matrix a, const jw_prepared *prepared, float beta,
                        float *c, jw_index c_leading);

/* --- windows along one axis: convolution and pooling ------------------------------------------ */

/* Sizes along one axis, in elements; `pad` is the padding before the first element, `dilation` the
 * distance of two neighbouring taps. */
typedef struct {
    jw_index in, out, kernel, stride, pad, dilation;
} jw_axis;

/* Elements from the first tap to the last one. */
static inline jw_index jw_extent(const jw_axis *axis) {
    return (axis->kernel - 1) * axis->dilation + 1;
}

static inline jw_axis jw_axis_of(jw_index in, jw_index kernel, jw_index stride, jw_index pad_before,
                                 jw_index pad_after, jw_index dilation) {
    jw_axis axis = {in, 0, kernel, stride, pad_before, dilation};
    axis.out = (in + pad_before + pad_after - jw_extent(&axis)) / stride + 1;
    return axis;
}

/* Input index that tap `tap` reads at output position `position`; may be outside [0, in). */
static inline jw_index jw_source(const jw_axis *axis, jw_index position, jw_index tap) {
    return position * axis->stride + tap * axis->dilation - axis->pad;
}

/* Tap `tap` reads inside the input at the output positions [jw_first, jw_last). */
static inline jw_index jw_first(const jw_axis *axis, jw_index tap) {
    const jw_index before = axis->pad - tap * axis->dilation;
    return before <= 0 ? 0 : jw_min(jw_ceil_div(before, axis->stride), axis->out);
}

static inline jw_index jw_last(const jw_axis *axis, jw_index tap) {
    const jw_index room = axis->in + axis->pad - tap * axis->dilation;
    return room <= 0
               ? 0
               : jw_max(jw_min(jw_ceil_div(room, axis->stride), axis->out), jw_first(axis, tap));
}

/* --- sums ------------------------------------------------------------------------------------- */

/* Number of partial sums of a sum; element i is added to lane i mod JW_LANES. A compiler can
 * vectorise this without changing the order of additions, which is therefore the same on every call
 * and at every address. */
#define JW_LANES 32

static inline void jw_clear_lanes(float lanes[JW_LANES]) {
    for (int l = 0; l < JW_LANES; l++) {
        lanes[l] = 0.0f;
    }
}

/* Sum of all lanes, which are overwritten. */
static inline float jw_fold_lanes(float lanes[JW_LANES]) {
    for (int width = JW_LANES / 2; width > 0; width /= 2) {
        for (int l = 0; l < width; l++) {
            lanes[l] += lanes[l + width];
        }
    }
    return lanes[0];
}

/* Sum of all lanes, which are kept. */
static inline float jw_folded_lanes(const float *lanes) {
    float copy[JW_LANES];
    memcpy(copy, lanes, sizeof copy);
    return jw_fold_lanes(copy);
}

/* Add a * b, expressions in the index i, to `lanes` for i in [0, count). */
#define JW_ADD_PRODUCTS(lanes, count, a, b) JW_CONTINUE_PRODUCTS(lanes, 0, count, a, b)

/* The same for elements of a longer sum, in which i = 0 is element `first`: its lane is
 * first mod JW_LANES. */
#define JW_CONTINUE_PRODUCTS(lanes, first, count, a, b)                                            \
    do {                                                                                           \
        float jw_lanes[JW_LANES];                                                                  \
        const jw_index jw_lane = (first) % JW_LANES;                                               \
        jw_index jw_base = jw_lane == 0 ? 0 : jw_min(JW_LANES - jw_lane, (count));                 \
        memcpy(jw_lanes, (lanes), sizeof jw_lanes);                                                \
        for (jw_index i = 0; i < jw_base; i++)                                                     \
            jw_lanes[jw_lane + i] = JW_FMA((a), (b), jw_lanes[jw_lane + i]);                       \
        for (; jw_base + JW_LANES <= (count); jw_base += JW_LANES)                                 \
            for (int jw_l = 0; jw_l < JW_LANES; jw_l++) {                                          \
                const jw_index i = jw_base + jw_l;                                                 \
                jw_lanes[jw_l] = JW_FMA((a), (b), jw_lanes[jw_l]);                                 \
            }                                                                                      \
        for (jw_index i = jw_base; i < (count); i++)                                               \
            jw_lanes[i - jw_base] = JW_FMA((a), (b), jw_lanes[i - jw_base]);                       \
        memcpy((lanes), jw_lanes, sizeof jw_lanes);                                                \
    } while (0)

static inline void jw_add_sum(float lanes[JW_LANES], const float *x, jw_index count) {
    JW_ADD_PRODUCTS(lanes, count, x[i], 1.0f);
}

static inline float jw_sum(const float *x, jw_index count) {
    float lanes[JW_LANES];
    if (count <= 4) { /* as below, without the lanes that are zero; 0 + -0 is +0 there too */
        const float first = count > 0 ? x[0] : 0.0f, second = count > 1 ? x[1] : 0.0f;
        const float third = count > 2 ? x[2] : 0.0f, fourth = count > 3 ? x[3] : 0.0f;
        return ((0.0f + first) + third) + (second + fourth);
    }
    jw_clear_lanes(lanes);
    jw_add_sum(lanes, x, count);
    return jw_fold_lanes(lanes);
}

/* Largest of `least` and the elements of x; NaNs among these are ignored. */
static inline float jw_maximum(float least, const float *x, jw_index count) {
    float lanes[JW_LANES];
    jw_index base = 0;
    for (int l = 0; l < JW_LANES; l++) {
        lanes[l] = least;
    }
    for (; base + JW_LANES <= count; base += JW_LANES) {
        for (int l = 0; l < JW_LANES; l++) {
            lanes[l] = x[base + l] > lanes[l] ? x[base + l] : lanes[l];
        }
    }
    for (jw_index i = base; i < count; i++) {
        lanes[i - base] = x[i] > lanes[i - base] ? x[i] : lanes[i - base];
    }
    for (int width = JW_LANES / 2; width > 0; width /= 2) {
        for (int l = 0; l < width; l++) {
            lanes[l] = lanes[l + width] > lanes[l] ? lanes[l + width] : lanes[l];
        }
    }
    return lanes[0];
}

static inline void jw_fill(float *restrict out, float value, jw_index count) {
    for (jw_index i = 0; i < count; i++) {
        out[i] = value;
    }
}

/* Some floats that are copied at once: structs, so that a Cortex-M copies them with one load and one
 * store of several registers. */
typedef struct {
    float at[2];
} jw_two;

typedef struct {
    float at[4];
} jw_four;

static inline void jw_copy_chunk(float *restrict to, const float *restrict from, jw_index chunk) {
    if (JW_SMALL_MEMORY && chunk == 4) {
        *(jw_four *)(void *)to = *(const jw_four *)(const void *)from;
    } else if (JW_SMALL_MEMORY && chunk == 2) {
        *(jw_two *)(void *)to = *(const jw_two *)(const void *)from;
    } else {
        memcpy(to, from, (size_t)chunk * sizeof(float));
    }
}

/* Copy rows in chunks, of which the last two of a row may overlap; width >= chunk. Called with constants,
 * so that a row is a few instructions. */
static inline void jw_copy_chunks(float *restrict to, jw_index to_leading,
                                  const float *restrict from, jw_index from_leading, jw_index rows,
                                  jw_index width, jw_index chunk) {
    for (jw_index r = 0; r < rows; r++, to += to_leading, from += from_leading) {
        for (jw_index x = 0; x + chunk < width; x += chunk) {
            jw_copy_chunk(to + x, from + x, chunk);
        }
        jw_copy_chunk(to + width - chunk, from + width - chunk, chunk);
    }
}

static inline void jw_copy_rows(float *restrict to, jw_index to_leading, const float *restrict from,
                                jw_index from_leading, jw_index rows, jw_index width) {
    if (!JW_SMALL_MEMORY && width >= 16) {
        jw_copy_chunks(to, to_leading, from, from_leading, rows, width, 16);
    } else if (!JW_SMALL_MEMORY && width >= 8) {
        jw_copy_chunks(to, to_leading, from, from_leading, rows, width, 8);
    } else if (JW_SMALL_MEMORY && width == 8) {
        jw_copy_chunks(to, to_leading, from, from_leading, rows, 8, 4);
    } else if (width == 4) {
        jw_copy_chunks(to, to_leading, from, from_leading, rows, 4, 4);
    } else if (width > 4) {
        jw_copy_chunks(to, to_leading, from, from_leading, rows, width, 4);
    } else if (JW_SMALL_MEMORY && width >= 2) {
        jw_copy_chunks(to, to_leading, from, from_leading, rows, width, 2);
    } else if (width >= 1) {
        jw_copy_chunks(to, to_leading, from, from_leading, rows, width, 1);
    }
}

/* Copy what earlier parts of an operation have left, unless it is in place. */
static inline void jw_take_over(float *written, const float *before, jw_index floats) {
    if (written != before) {
        memcpy(written, before, (size_t)floats * sizeof(float));
    }
}

#endif
