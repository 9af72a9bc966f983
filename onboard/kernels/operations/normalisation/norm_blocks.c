/* Layer and RMS normalisation over parts of the features: chains of partial sums, then the parts. The
 * formulas, and the order of every sum, are those of layer_norm.c. */
#include "kernels.h"

typedef struct {
    jw_index rows, first, channels; /* features of the part */
    float count;                    /* features of all parts */
} part;

static part part_of(const int32_t *a) {
    const part p = {a[0], a[2], a[3], (float)a[1]};
    return p;
}

/* Result number `written`: the sums so far, which are operand number `before`, or zeros for the first
 * part. */
static float *continued(part p, const jw_call *call, int written, int before) {
    float *sums = call->writes[written];
    if (p.first > 0) {
        jw_take_over(sums, call->reads[before], p.rows * JW_LANES);
    } else {
        jw_fill(sums, 0.0f, p.rows * JW_LANES);
    }
    return sums;
}

void jw_layer_norm_block_sum(const jw_call *call) {
    const part p = part_of(call->attributes);
    float *sums = continued(p, call, 0, 1);
    for (jw_index r = 0; r < p.rows; r++) {
        const float *x = (const float *)call->reads[0] + r * p.channels;
        JW_CONTINUE_PRODUCTS(sums + r * JW_LANES, p.first, p.channels, x[i], 1.0f);
    }
}

void jw_layer_norm_block_squares(const jw_call *call) {
    const part p = part_of(call->attributes);
    const float *sums = call->reads[1];
    float *squares = continued(p, call, 0, 2);
    for (jw_index r = 0; r < p.rows; r++) {
        const float *x = (const float *)call->reads[0] + r * p.channels;
        const float mean = jw_folded_lanes(sums + r * JW_LANES) / p.count;
        JW_CONTINUE_PRODUCTS(squares + r * JW_LANES, p.first, p.channels, x[i] - mean, x[i] - mean);
    }
}

/* Means of the sums of all rows. */
static void means(const int32_t *attributes, const float *sums, float *written) {
    for (jw_index r = 0; r < attributes[0]; r++) {
        written[r] = jw_folded_lanes(sums + r * JW_LANES) / (float)attributes[1];
    }
}

void jw_layer_norm_block_statistics(const jw_call *call) {
    means(call->attributes, call->reads[0], call->writes[0]);
    means(call->attributes, call->reads[1], call->writes[1]);
}

void jw_layer_norm_block_forward(const jw_call *call) {
    const part p = part_of(call->attributes);
    const float epsilon = call->scalars[0];
    const float *restrict scale = call->reads[1], *restrict shift = call->reads[2];
    const float *means_of_rows = call->reads[3], *variances = call->reads[4];
    for (jw_index r = 0; r < p.rows; r++) {
        const float *x = (const float *)call->reads[0] + r * p.channels;
        float *restrict y = (float *)call->writes[0] + r * p.channels;
        const float mean = means_of_rows[r], factor = 1.0f / sqrtf(variances[r] + epsilon);
        for (jw_index f = 0; f < p.channels; f++) {
            y[f] = JW_FMA((x[f] - mean) * factor, scale[f], shift[f]);
        }
    }
}

void jw_layer_norm_block_gradient_sums(const jw_call *call) {
    const part p = part_of(call->attributes);
    const float *scale = call->reads[2], *means_of_rows = call->reads[3];
    float *sums = continued(p, call, 0, 5);
    float *products = continued(p, call, 1, 6);
    for (jw_index r = 0; r < p.rows; r++) {
        const float *x = (const float *)call->reads[0] + r * p.channels;
        const float *dy = (const float *)call->reads[1] + r * p.channels;
        const float mean = means_of_rows[r];
        JW_CONTINUE_PRODUCTS(sums + r * JW_LANES, p.first, p.channels, dy[i], scale[i]);
        JW_CONTINUE_PRODUCTS(products + r * JW_LANES, p.first, p.channels, dy[i] * scale[i],
                             x[i] - mean);
    }
}

void jw_layer_norm_block_input_gradient(const jw_call *call) {
    const part p = part_of(call->attributes);
    const float epsilon = call->scalars[0];
    const float *scale = call->reads[2], *means_of_rows = call->reads[3];
    const float *variances = call->reads[4], *sums = call->reads[5], *products = call->reads[6];
    for (jw_index r = 0; r < p.rows; r++) {
        const float *x = (const float *)call->reads[0] + r * p.channels;
        const float *dy = (const float *)call->reads[1] + r * p.channels;
        float *dx = (float *)call->writes[0] + r * p.channels;
        const float mean = means_of_rows[r], factor = 1.0f / sqrtf(variances[r] + epsilon);
        const float offset = -jw_folded_lanes(sums + r * JW_LANES) / p.count;
        const float slope = -jw_folded_lanes(products + r * JW_LANES) * factor * factor / p.count;
        JW_INDEPENDENT
        for (jw_index f = 0; f < p.channels; f++) {
            dx[f] = factor * JW_FMA(dy[f], scale[f], JW_FMA(slope, x[f] - mean, offset));
        }
    }
}

void jw_rms_norm_block_squares(const jw_call *call) {
    const part p = part_of(call->attributes);
    float *squares = continued(p, call, 0, 1);
    for (jw_index r = 0; r < p.rows; r++) {
        const float *x = (const float *)call->reads[0] + r * p.channels;
        JW_CONTINUE_PRODUCTS(squares + r * JW_LANES, p.first, p.channels, x[i], x[i]);
    }
}

void jw_rms_norm_block_statistics(const jw_call *call) {
    means(call->attributes, call->reads[0], call->writes[0]);
}

void jw_rms_norm_block_forward(const jw_call *call) {
    const part p = part_of(call->attributes);
    const float epsilon = call->scalars[0];
    const float *restrict scale = call->reads[1], *mean_squares = call->reads[2];
    for (jw_index r = 0; r < p.rows; r++) {
        const float *x = (const float *)call->reads[0] + r * p.channels;
        float *restrict y = (float *)call->writes[0] + r * p.channels;
        const float factor = 1.0f / sqrtf(mean_squares[r] + epsilon);
        for (jw_index f = 0; f < p.channels; f++) {
            y[f] = x[f] * factor * scale[f];
        }
    }
}

void jw_rms_norm_block_gradient_sums(const jw_call *call) {
    const part p = part_of(call->attributes);
    const float *scale = call->reads[2];
    float *products = continued(p, call, 0, 4);
    for (jw_index r = 0; r < p.rows; r++) {
        const float *x = (const float *)call->reads[0] + r * p.channels;
        const float *dy = (const float *)call->reads[1] + r * p.channels;
        JW_CONTINUE_PRODUCTS(products + r * JW_LANES, p.first, p.channels, dy[i] * scale[i], x[i]);
    }
}

void jw_rms_norm_block_input_gradient(const jw_call *call) {
    const part p = part_of(call->attributes);
    const float epsilon = call->scalars[0];
    const float *scale = call->reads[2], *mean_squares = call->reads[3];
    const float *products = call->reads[4];
    for (jw_index r = 0; r < p.rows; r++) {
        const float *x = (const float *)call->reads[0] + r * p.channels;
        const float *dy = (const float *)call->reads[1] + r * p.channels;
        float *dx = (float *)call->writes[0] + r * p.channels;
        const float factor = 1.0f / sqrtf(mean_squares[r] + epsilon);
        const float slope = -jw_folded_lanes(products + r * JW_LANES) * factor * factor / p.count;
        JW_INDEPENDENT
        for (jw_index f = 0; f < p.channels; f++) {
            dx[f] = factor * JW_FMA(dy[f], scale[f], slope * x[f]);
        }
    }
}
