/* Parameter gradients of the recurrent layers: matrix products over all steps. */
#include "recurrent.h"

void jw_hidden_weight_gradient(const jw_recurrence *r, const float *gradient, jw_index width,
                               jw_index columns, const float *output, const float *initial,
                               float *weight_gradient, float *workspace) {
    /* Row `row` of the gradient belongs to the state one step before it. In [batch, steps] every
     * sample is a product of its own, in [steps, batch] all of them are one. */
    const jw_index products = r->step_rows == 1 ? r->batch : 1;
    const jw_index sample_rows = r->rows / products;
    const jw_index depth = sample_rows - r->step_rows;
    const jw_index after = r->is_reverse ? 0 : r->step_rows;
    const jw_index before = r->is_reverse ? r->step_rows : 0;
    float beta = 0.0f;

    if (depth > 0) {
        for (jw_index p = 0; p < products; p++) {
            jw_matmul(columns, r->hidden, depth, 1.0f,
                      jw_transposed(gradient + (p * sample_rows + after) * width, width),
                      jw_plain(output + (p * sample_rows + before) * r->hidden, r->hidden), beta,
                      weight_gradient, r->hidden, workspace);
            beta = 1.0f;
        }
    }
    if (initial) {
        jw_matmul(columns, r->hidden, r->batch, 1.0f,
                  jw_transposed(gradient + jw_first_row(r, 0) * width, r->row_step * width),
                  jw_plain(initial, r->hidden), beta, weight_gradient, r->hidden, workspace);
    } else if (depth == 0) {
        jw_fill(weight_gradient, 0.0f, columns * r->hidden);
    }
}

jw_index jw_hidden_weight_gradient_floats(const jw_recurrence *r) {
    return jw_matmul_workspace(r->hidden, r->rows);
}

void jw_hidden_bias_gradient(const jw_recurrence *r, const float *restrict gradient, jw_index width,
                             jw_index columns, float *restrict bias_gradient) {
    jw_fill(bias_gradient, 0.0f, columns);
    for (jw_index row = 0; row < r->rows; row++) {
        for (jw_index k = 0; k < columns; k++) {
            bias_gradient[k] += gradient[row * width + k];
        }
    }
}
