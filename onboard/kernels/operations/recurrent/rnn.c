/* Elman's recurrent layer: h = f(gates + W h + b) with tanh or ReLU. */
#include "exponential.h"
#include "recurrent.h"

typedef enum { TANH, RELU } activation;

static size_t bytes(jw_index floats) {
    return (size_t)floats * sizeof(float);
}

static void forward(const jw_call *call, activation f) {
    const jw_recurrence r = jw_recurrence_of(call->attributes);
    const float *const *reads = (const float *const *)call->reads;
    const float *weight = reads[1], *bias = r.has_bias ? reads[2] : NULL;
    const float *initial = r.has_initial_hidden ? reads[2 + r.has_bias] : NULL;
    float *output = call->writes[0];
    const jw_prepared products =
        jw_prepare(r.hidden, r.hidden, jw_transposed(weight, r.hidden), call->workspace);

    jw_add_to_rows(r.rows, r.hidden, reads[0], bias, output);
    for (jw_index step = 0; step < r.steps; step++) {
        float *now = output + jw_first_row(&r, step) * r.hidden;
        jw_index leading;
        const float *before = jw_hidden_before(&r, step, output, initial, &leading);
        if (before) {
            jw_matmul_prepared(r.batch, jw_plain(before, leading), &products, 1.0f, now,
                               r.row_step * r.hidden);
        }
        for (jw_index b = 0; b < r.batch; b++) {
            float *h = now + b * r.row_step * r.hidden;
            if (f == TANH) {
                for (jw_index k = 0; k < r.hidden; k++) {
                    h[k] = jw_tanh(h[k]);
                }
            } else {
                for (jw_index k = 0; k < r.hidden; k++) {
                    h[k] = h[k] < 0.0f ? 0.0f : h[k];
                }
            }
        }
    }
}

void jw_rnn_tanh_forward(const jw_call *call) {
    forward(call, TANH);
}

void jw_rnn_relu_forward(const jw_call *call) {
    forward(call, RELU);
}

size_t jw_rnn_forward_workspace(const int32_t *attributes) {
    const jw_index hidden = attributes[2];
    return bytes(jw_prepared_floats(hidden, hidden, 1));
}

static void input_gradient(const jw_call *call, activation f) {
    const jw_recurrence r = jw_recurrence_of(call->attributes);
    const float *output = call->reads[0], *weight = call->reads[1];
    const float *output_gradient = call->reads[2];
    float *gates_gradient = call->writes[0];
    float *carried = call->workspace; /* gradient of the hidden state from the step after */
    const jw_prepared products = jw_prepare(r.hidden, r.hidden, jw_plain(weight, r.hidden),
                                            carried + jw_padded(r.batch * r.hidden));

    jw_fill(carried, 0.0f, r.batch * r.hidden);
    for (jw_index step = r.steps - 1; step >= 0; step--) {
        const jw_index first = jw_first_row(&r, step) * r.hidden;
        for (jw_index b = 0; b < r.batch; b++) {
            const jw_index row = first + b * r.row_step * r.hidden;
            const float *h = output + row, *dy = output_gradient + row;
            const float *dh = carried + b * r.hidden;
            float *dx = gates_gradient + row;
            if (f == TANH) {
                JW_INDEPENDENT
                for (jw_index k = 0; k < r.hidden; k++) {
                    dx[k] = (dy[k] + dh[k]) * (1.0f - h[k] * h[k]);
                }
            } else {
                JW_INDEPENDENT
                for (jw_index k = 0; k < r.hidden; k++) {
                    dx[k] = h[k] <= 0.0f ? 0.0f : dy[k] + dh[k];
                }
            }
        }
        if (step > 0 || r.has_initial_hidden) {
            jw_matmul_prepared(r.batch, jw_plain(gates_gradient + first, r.row_step * r.hidden),
                               &products, 0.0f, carried, r.hidden);
        }
    }
    if (r.has_initial_hidden) {
        memcpy(call->writes[1], carried, bytes(r.batch * r.hidden));
    }
}

void jw_rnn_tanh_input_gradient(const jw_call *call) {
    input_gradient(call, TANH);
}

void jw_rnn_relu_input_gradient(const jw_call *call) {
    input_gradient(call, RELU);
}

size_t jw_rnn_input_gradient_workspace(const int32_t *attributes) {
    const jw_recurrence r = jw_recurrence_of(attributes);
    return bytes(jw_padded(r.batch * r.hidden) + jw_prepared_floats(r.hidden, r.hidden, 0));
}

void jw_rnn_parameter_gradient(const jw_call *call) {
    const jw_recurrence r = jw_recurrence_of(call->attributes);
    const float *output = call->reads[0], *gradient = call->reads[1];
    const float *initial = r.has_initial_hidden ? call->reads[2] : NULL;
    jw_hidden_weight_gradient(&r, gradient, r.hidden, r.hidden, output, initial, call->writes[0],
                              call->workspace);
    if (r.has_bias) {
        jw_hidden_bias_gradient(&r, gradient, r.hidden, r.hidden, call->writes[1]);
    }
}

size_t jw_recurrent_parameter_gradient_workspace(const int32_t *attributes) {
    const jw_recurrence r = jw_recurrence_of(attributes);
    return bytes(jw_hidden_weight_gradient_floats(&r));
}
