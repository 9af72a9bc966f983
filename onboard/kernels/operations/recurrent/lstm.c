/* LSTM (Hochreiter and Schmidhuber 1997, with Gers' forget gate), with PyTorch's order of gates:
 * i, f, g, o = gates + W h + b; c' = sigmoid(f) c + sigmoid(i) tanh(g); h' = sigmoid(o) tanh(c'). */
#include "exponential.h"
#include "recurrent.h"

static size_t bytes(jw_index floats) {
    return (size_t)floats * sizeof(float);
}

static jw_recurrence recurrence_of(const int32_t *a) {
    jw_recurrence r = jw_recurrence_of(a);
    r.has_initial_cell = a[7] != 0;
    r.has_final_cell = a[8] != 0;
    return r;
}

/* One sample's step. `before`: cell of the step before, NULL for zeros. */
static void advance(jw_index hidden, float *gates, const float *before, float *cell,
                    float *restrict output) {
    float *i = gates, *f = i + hidden, *g = f + hidden, *o = g + hidden;
    for (jw_index k = 0; k < 2 * hidden; k++) { /* i and f */
        i[k] = jw_sigmoid(i[k]);
    }
    for (jw_index k = 0; k < hidden; k++) {
        g[k] = jw_tanh(g[k]);
    }
    for (jw_index k = 0; k < hidden; k++) {
        o[k] = jw_sigmoid(o[k]);
    }
    if (before) {
        JW_INDEPENDENT
        for (jw_index k = 0; k < hidden; k++) {
            cell[k] = JW_FMA(f[k], before[k], i[k] * g[k]);
        }
    } else {
        JW_INDEPENDENT
        for (jw_index k = 0; k < hidden; k++) {
            cell[k] = i[k] * g[k];
        }
    }
    JW_INDEPENDENT
    for (jw_index k = 0; k < hidden; k++) {
        output[k] = o[k] * jw_tanh(cell[k]);
    }
}

/* Cell of sample b before step `step`; NULL for zeros. */
static const float *cell_before(const jw_recurrence *r, jw_index step, jw_index b,
                                const float *cells, const float *initial) {
    if (step == 0) {
        return initial ? initial + b * r->hidden : NULL;
    }
    return cells + (jw_first_row(r, step - 1) + b * r->row_step) * r->hidden;
}

void jw_lstm_forward(const jw_call *call) {
    const jw_recurrence r = recurrence_of(call->attributes);
    const jw_index hidden = r.hidden, width = 4 * hidden;
    const void *const *optional = call->reads + 2;
    const float *weight = call->reads[1];
    const float *bias = r.has_bias ? *optional++ : NULL;
    const float *initial = r.has_initial_hidden ? *optional++ : NULL;
    const float *initial_cell = r.has_initial_cell ? *optional++ : NULL;
    float *output = call->writes[0], *cells = call->writes[1], *gates = call->writes[2];
    const jw_prepared products =
        jw_prepare(width, hidden, jw_transposed(weight, hidden), call->workspace);

    jw_add_to_rows(r.rows, width, call->reads[0], bias, gates);
    for (jw_index step = 0; step < r.steps; step++) {
        const jw_index first = jw_first_row(&r, step);
        jw_index leading;
        const float *before = jw_hidden_before(&r, step, output, initial, &leading);
        if (before) {
            jw_matmul_prepared(r.batch, jw_plain(before, leading), &products, 1.0f,
                               gates + first * width, r.row_step * width);
        }
        for (jw_index b = 0; b < r.batch; b++) {
            const jw_index row = first + b * r.row_step;
            advance(hidden, gates + row * width, cell_before(&r, step, b, cells, initial_cell),
                    cells + row * hidden, output + row * hidden);
        }
    }
    if (r.has_final_cell) {
        float *final_cell = call->writes[3];
        for (jw_index b = 0; b < r.batch; b++) {
            memcpy(final_cell + b * hidden, cell_before(&r, r.steps, b, cells, NULL),
                   bytes(hidden));
        }
    }
}

size_t jw_lstm_forward_workspace(const int32_t *attributes) {
    const jw_index hidden = attributes[2];
    return bytes(jw_prepared_floats(4 * hidden, hidden, 1));
}

/* One sample's step back. `gates` holds the activated gates, of which `gradient`, perhaps the same
 * buffer, gets the gradients before activation. `dh` and `dc` are the gradients of hidden state and
 * cell from the step after; dc becomes that for the step before. */
static void retreat(jw_index hidden, const float *gates, const float *cell, const float *before,
                    const float *dy, const float *dh, float *dc, float *gradient) {
    const float *i = gates, *f = i + hidden, *g = f + hidden, *o = g + hidden;
    float *di = gradient, *df = di + hidden, *dg = df + hidden, *d_o = dg + hidden;
    JW_INDEPENDENT
    for (jw_index k = 0; k < hidden; k++) {
        const float bent = jw_tanh(cell[k]), dhidden = dy[k] + dh[k];
        const float in = i[k], kept = f[k], fresh = g[k], out = o[k];
        const float dcell = JW_FMA(dhidden * out, 1.0f - bent * bent, dc[k]);
        d_o[k] = dhidden * bent * (out * (1.0f - out));
        di[k] = dcell * fresh * (in * (1.0f - in));
        dg[k] = dcell * in * (1.0f - fresh * fresh);
        df[k] = kept * (1.0f - kept) * dcell; /* times the cell before, below */
        dc[k] = dcell * kept;
    }
    if (before) {
        JW_INDEPENDENT
        for (jw_index k = 0; k < hidden; k++) {
            df[k] *= before[k];
        }
    } else {
        jw_fill(df, 0.0f, hidden);
    }
}

void jw_lstm_input_gradient(const jw_call *call) {
    const jw_recurrence r = recurrence_of(call->attributes);
    const jw_index hidden = r.hidden, width = 4 * hidden, states = r.batch * hidden;
    const void *const *optional = call->reads + 4;
    const float *gates = call->reads[0], *cells = call->reads[1], *weight = call->reads[2];
    const float *output_gradient = call->reads[3];
    const float *initial_cell = r.has_initial_cell ? *optional++ : NULL;
    const float *final_cell_gradient = r.has_final_cell ? *optional++ : NULL;
    float *gradient = call->writes[0];
    float *dh = call->workspace, *dc = dh + jw_padded(states);
    const jw_prepared products =
        jw_prepare(hidden, width, jw_plain(weight, hidden), dc + jw_padded(states));

    jw_fill(dh, 0.0f, states);
    if (final_cell_gradient) {
        memcpy(dc, final_cell_gradient, bytes(states));
    } else {
        jw_fill(dc, 0.0f, states);
    }
    for (jw_index step = r.steps - 1; step >= 0; step--) {
        const jw_index first = jw_first_row(&r, step);
        for (jw_index b = 0; b < r.batch; b++) {
            const jw_index row = first + b * r.row_step;
            retreat(hidden, gates + row * width, cells + row * hidden,
                    cell_before(&r, step, b, cells, initial_cell), output_gradient + row * hidden,
                    dh + b * hidden, dc + b * hidden, gradient + row * width);
        }
        if (step > 0 || r.has_initial_hidden) {
            jw_matmul_prepared(r.batch, jw_plain(gradient + first * width, r.row_step * width),
                               &products, 0.0f, dh, hidden);
        }
    }
    if (r.has_initial_hidden) {
        memcpy(call->writes[1], dh, bytes(states));
    }
    if (r.has_initial_cell) {
        memcpy(call->writes[1 + r.has_initial_hidden], dc, bytes(states));
    }
}

size_t jw_lstm_input_gradient_workspace(const int32_t *attributes) {
    const jw_recurrence r = recurrence_of(attributes);
    return bytes(2 * jw_padded(r.batch * r.hidden) + jw_prepared_floats(r.hidden, 4 * r.hidden, 0));
}

void jw_lstm_parameter_gradient(const jw_call *call) {
    const jw_recurrence r = recurrence_of(call->attributes);
    const jw_index width = 4 * r.hidden;
    const float *output = call->reads[0], *gradient = call->reads[1];
    const float *initial = r.has_initial_hidden ? call->reads[2] : NULL;
    jw_hidden_weight_gradient(&r, gradient, width, width, output, initial, call->writes[0],
                              call->workspace);
    if (r.has_bias) {
        jw_hidden_bias_gradient(&r, gradient, width, width, call->writes[1]);
    }
}
