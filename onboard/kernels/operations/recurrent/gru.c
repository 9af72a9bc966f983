/* GRU (Cho et al. 2014) in PyTorch's form, which applies the reset gate after the product:
 * r, z = sigmoid(gates + W h + b); n = tanh(gates + r (W h + b)); h' = n + z (h - n).
 * `candidate` is n's product W h + b, which the backward pass needs. */
#include "exponential.h"
#include "recurrent.h"

static size_t bytes(jw_index floats) {
    return (size_t)floats * sizeof(float);
}

/* One sample's step. `before`: hidden state of the step before, NULL for zeros. */
static void advance(jw_index hidden, float *gates, const float *candidate, const float *before,
                    float *restrict output) {
    float *r = gates, *z = r + hidden, *n = z + hidden;
    for (jw_index k = 0; k < 2 * hidden; k++) { /* r and z */
        r[k] = jw_sigmoid(r[k]);
    }
    JW_INDEPENDENT
    for (jw_index k = 0; k < hidden; k++) {
        n[k] = jw_tanh(JW_FMA(r[k], candidate[k], n[k]));
    }
    if (before) {
        JW_INDEPENDENT
        for (jw_index k = 0; k < hidden; k++) {
            output[k] = JW_FMA(z[k], before[k] - n[k], n[k]);
        }
    } else {
        JW_INDEPENDENT
        for (jw_index k = 0; k < hidden; k++) {
            output[k] = n[k] - z[k] * n[k];
        }
    }
}

void jw_gru_forward(const jw_call *call) {
    const jw_recurrence r = jw_recurrence_of(call->attributes);
    const jw_index hidden = r.hidden, width = 3 * hidden;
    const void *const *optional = call->reads + 2;
    const float *input_gates = call->reads[0], *weight = call->reads[1];
    const float *bias = r.has_bias ? *optional++ : NULL;
    const float *initial = r.has_initial_hidden ? *optional++ : NULL;
    float *output = call->writes[0], *gates = call->writes[1], *candidate = call->writes[2];
    float *workspace = call->workspace;
    const jw_prepared to_gates =
        jw_prepare(2 * hidden, hidden, jw_transposed(weight, hidden), workspace);
    const jw_prepared to_candidate =
        jw_prepare(hidden, hidden, jw_transposed(weight + 2 * hidden * hidden, hidden),
                   workspace + jw_prepared_floats(2 * hidden, hidden, 1));

    if (gates != input_gates) {
        memcpy(gates, input_gates, bytes(r.rows * width));
    }
    for (jw_index row = 0; row < r.rows; row++) {
        float *restrict added = gates + row * width, *restrict n = candidate + row * hidden;
        for (jw_index k = 0; bias && k < 2 * hidden; k++) {
            added[k] += bias[k];
        }
        for (jw_index k = 0; k < hidden; k++) {
            n[k] = bias ? bias[2 * hidden + k] : 0.0f;
        }
    }
    for (jw_index step = 0; step < r.steps; step++) {
        const jw_index first = jw_first_row(&r, step);
        jw_index leading;
        const float *before = jw_hidden_before(&r, step, output, initial, &leading);
        if (before) {
            jw_matmul_prepared(r.batch, jw_plain(before, leading), &to_gates, 1.0f,
                               gates + first * width, r.row_step * width);
            jw_matmul_prepared(r.batch, jw_plain(before, leading), &to_candidate, 1.0f,
                               candidate + first * hidden, r.row_step * hidden);
        }
        for (jw_index b = 0; b < r.batch; b++) {
            const jw_index row = first + b * r.row_step;
            advance(hidden, gates + row * width, candidate + row * hidden,
                    before ? before + b * leading : NULL, output + row * hidden);
        }
    }
}

size_t jw_gru_forward_workspace(const int32_t *attributes) {
    const jw_index hidden = attributes[2];
    return bytes(jw_prepared_floats(2 * hidden, hidden, 1) + jw_prepared_floats(hidden, hidden, 1));
}

/* One sample's step back. `gates` and `candidate` may be the same buffers as their gradients. `dh`
 * is the gradient of the hidden state from the step after, and becomes the part of that for the
 * step before which does not go through the weight. */
static void retreat(jw_index hidden, const float *gates, const float *candidate,
                    const float *before, const float *dy, float *dh, float *gates_gradient,
                    float *candidate_gradient) {
    const float *r = gates, *z = r + hidden, *n = z + hidden;
    float *dr = gates_gradient, *dz = dr + hidden, *dn = dz + hidden;
    JW_INDEPENDENT
    for (jw_index k = 0; k < hidden; k++) {
        const float reset = r[k], kept = z[k], fresh = n[k], product = candidate[k];
        const float dhidden = dy[k] + dh[k], old = before[k];
        const float dfresh = dhidden * (1.0f - kept) * (1.0f - fresh * fresh);
        dr[k] = dfresh * product * (reset * (1.0f - reset));
        dz[k] = dhidden * (old - fresh) * (kept * (1.0f - kept));
        dn[k] = dfresh;
        candidate_gradient[k] = dfresh * reset;
        dh[k] = dhidden * kept;
    }
}

void jw_gru_input_gradient(const jw_call *call) {
    const jw_recurrence r = jw_recurrence_of(call->attributes);
    const jw_index hidden = r.hidden, width = 3 * hidden, states = r.batch * hidden;
    const float *gates = call->reads[0], *candidate = call->reads[1], *output = call->reads[2];
    const float *weight = call->reads[3], *output_gradient = call->reads[4];
    const float *initial = r.has_initial_hidden ? call->reads[5] : NULL;
    float *gates_gradient = call->writes[0], *candidate_gradient = call->writes[1];
    float *dh = call->workspace, *zeros = dh + jw_padded(states);
    float *workspace = zeros + jw_padded(hidden);
    const jw_prepared from_gates =
        jw_prepare(hidden, 2 * hidden, jw_plain(weight, hidden), workspace);
    const jw_prepared from_candidate =
        jw_prepare(hidden, hidden, jw_plain(weight + 2 * hidden * hidden, hidden),
                   workspace + jw_prepared_floats(hidden, 2 * hidden, 0));

    jw_fill(dh, 0.0f, states);
    jw_fill(zeros, 0.0f, hidden);
    for (jw_index step = r.steps - 1; step >= 0; step--) {
        const jw_index first = jw_first_row(&r, step);
        jw_index leading;
        const float *before = jw_hidden_before(&r, step, output, initial, &leading);
        for (jw_index b = 0; b < r.batch; b++) {
            const jw_index row = first + b * r.row_step;
            retreat(hidden, gates + row * width, candidate + row * hidden,
                    before ? before + b * leading : zeros, output_gradient + row * hidden,
                    dh + b * hidden, gates_gradient + row * width,
                    candidate_gradient + row * hidden);
        }
        if (before) {
            jw_matmul_prepared(r.batch,
                               jw_plain(gates_gradient + first * width, r.row_step * width),
                               &from_gates, 1.0f, dh, hidden);
            jw_matmul_prepared(r.batch,
                               jw_plain(candidate_gradient + first * hidden, r.row_step * hidden),
                               &from_candidate, 1.0f, dh, hidden);
        }
    }
    if (r.has_initial_hidden) {
        memcpy(call->writes[2], dh, bytes(states));
    }
}

size_t jw_gru_input_gradient_workspace(const int32_t *attributes) {
    const jw_recurrence r = jw_recurrence_of(attributes);
    return bytes(jw_padded(r.batch * r.hidden) + jw_padded(r.hidden) +
                 jw_prepared_floats(r.hidden, 2 * r.hidden, 0) +
                 jw_prepared_floats(r.hidden, r.hidden, 0));
}

void jw_gru_parameter_gradient(const jw_call *call) {
    const jw_recurrence r = jw_recurrence_of(call->attributes);
    const jw_index hidden = r.hidden, width = 3 * hidden;
    const float *output = call->reads[0], *gates_gradient = call->reads[1];
    const float *candidate_gradient = call->reads[2];
    const float *initial = r.has_initial_hidden ? call->reads[3] : NULL;
    float *weight_gradient = call->writes[0];
    jw_hidden_weight_gradient(&r, gates_gradient, width, 2 * hidden, output, initial,
                              weight_gradient, call->workspace);
    jw_hidden_weight_gradient(&r, candidate_gradient, hidden, hidden, output, initial,
                              weight_gradient + 2 * hidden * hidden, call->workspace);
    if (r.has_bias) {
        float *bias_gradient = call->writes[1];
        jw_hidden_bias_gradient(&r, gates_gradient, width, 2 * hidden, bias_gradient);
        jw_hidden_bias_gradient(&r, candidate_gradient, hidden, hidden, bias_gradient + 2 * hidden);
    }
}
