/* Shared by the recurrent layers. The input's part of the gates, W x + b for all steps, is made by
 * a linear layer; the kernels here add what depends on the hidden state.
 *
 * A sequence is [steps, batch, width], or [batch, steps, width] with the attribute `batch_first`.
 * With `reverse`, the first step is the last one in memory. */
#ifndef JW_RECURRENT_H
#define JW_RECURRENT_H

#include "kernels.h"

typedef struct {
    jw_index steps, batch, hidden;
    int has_bias, is_reverse;
    int has_initial_hidden, has_initial_cell, has_final_cell;
    jw_index row_step;  /* rows from one sample of a step to the next */
    jw_index step_rows; /* rows from one step in memory to the next */
    jw_index rows;
} jw_recurrence;

/* Reads the attributes that all recurrent layers have, which come first. */
static inline jw_recurrence jw_recurrence_of(const int32_t *a) {
    const int batch_first = a[4] != 0;
    const jw_recurrence r = {
        .steps = a[0],
        .batch = a[1],
        .hidden = a[2],
        .has_bias = a[3] != 0,
        .is_reverse = a[5] != 0,
        .has_initial_hidden = a[6] != 0,
        .row_step = batch_first ? a[0] : 1,
        .step_rows = batch_first ? 1 : a[1],
        .rows = (jw_index)a[0] * a[1],
    };
    return r;
}

/* Row of sample 0 at step `step`; that of sample b is b * row_step further on. */
static inline jw_index jw_first_row(const jw_recurrence *r, jw_index step) {
    return (r->is_reverse ? r->steps - 1 - step : step) * r->step_rows;
}

/* Hidden states of all samples before step `step`; NULL for zeros. `leading`: from one to the
 * next. */
static inline const float *jw_hidden_before(const jw_recurrence *r, jw_index step,
                                            const float *output, const float *initial,
                                            jw_index *leading) {
    *leading = step == 0 ? r->hidden : r->row_step * r->hidden;
    return step == 0 ? initial : output + jw_first_row(r, step - 1) * r->hidden;
}

/* target[row, k] = source[row, k] + bias[k]; without a bias, a copy. Both may be the same. */
static inline void jw_add_to_rows(jw_index rows, jw_index width, const float *source,
                                  const float *bias, float *target) {
    if (bias) {
        for (jw_index row = 0; row < rows; row++) {
            const float *x = source + row * width;
            float *y = target + row * width;
            JW_INDEPENDENT
            for (jw_index k = 0; k < width; k++) {
                y[k] = x[k] + bias[k];
            }
        }
    } else if (target != source) {
        memcpy(target, source, (size_t)(rows * width) * sizeof(float));
    }
}

/* Gradient of `columns` rows of the hidden weight, of whose products with the hidden states
 * `gradient` [rows, width] is the gradient, from its first column on. */
void jw_hidden_weight_gradient(const jw_recurrence *r, const float *gradient, jw_index width,
                               jw_index columns, const float *output, const float *initial,
                               float *weight_gradient, float *workspace);
jw_index jw_hidden_weight_gradient_floats(const jw_recurrence *r);

/* bias_gradient[k] = sum of gradient[row, k] over all rows, for the first `columns` columns. */
void jw_hidden_bias_gradient(const jw_recurrence *r, const float *gradient, jw_index width,
                             jw_index columns, float *bias_gradient);

#endif
