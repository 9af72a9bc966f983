/* Layer normalisation over the features of each row, with biased variances. */
#include "kernels.h"

void jw_layer_norm_forward(const jw_call *call) {
    const jw_index rows = call->attributes[0], features = call->attributes[1];
    const float epsilon = call->scalars[0], count = (float)features;
    const float *restrict scale = call->reads[1], *restrict shift = call->reads[2];
    float *means = call->writes[1], *variances = call->writes[2];

    for (jw_index r = 0; r < rows; r++) {
        const float *x = (const float *)call->reads[0] + r * features;
        float *restrict y = (float *)call->writes[0] + r * features;
        float lanes[JW_LANES];
        const float mean = jw_sum(x, features) / count;
        jw_clear_lanes(lanes);
        JW_ADD_PRODUCTS(lanes, features, x[i] - mean, x[i] - mean);
        const float variance = jw_fold_lanes(lanes) / count;
        const float factor = 1.0f / sqrtf(variance + epsilon);
        for (jw_index f = 0; f < features; f++) {
            y[f] = JW_FMA((x[f] - mean) * factor, scale[f], shift[f]);
        }
        means[r] = mean;
        variances[r] = variance;
    }
}

/* With g = dy * scale and x^ = (x - mean) / deviation:
 * dx = (g - mean(g) - x^ * mean(g * x^)) / deviation, Ba, Kiros and Hinton 2016. */
void jw_layer_norm_input_gradient(const jw_call *call) {
    const jw_index rows = call->attributes[0], features = call->attributes[1];
    const float epsilon = call->scalars[0], count = (float)features;
    const float *scale = call->reads[2], *means = call->reads[3], *variances = call->reads[4];

    for (jw_index r = 0; r < rows; r++) {
        const float *x = (const float *)call->reads[0] + r * features;
        const float *dy = (const float *)call->reads[1] + r * features;
        float *dx = (float *)call->writes[0] + r * features;
        const float mean = means[r], factor = 1.0f / sqrtf(variances[r] + epsilon);
        float sums[JW_LANES], products[JW_LANES];
        jw_clear_lanes(sums);
        jw_clear_lanes(products);
        JW_ADD_PRODUCTS(sums, features, dy[i], scale[i]);
        JW_ADD_PRODUCTS(products, features, dy[i] * scale[i], x[i] - mean);
        const float offset = -jw_fold_lanes(sums) / count;
        const float slope = -jw_fold_lanes(products) * factor * factor / count;
        JW_INDEPENDENT
        for (jw_index f = 0; f < features; f++) {
            dx[f] = factor * JW_FMA(dy[f], scale[f], JW_FMA(slope, x[f] - mean, offset));
        }
    }
}

void jw_layer_norm_parameter_gradient(const jw_call *call) {
    const jw_index rows = call->attributes[0], features = call->attributes[1];
    const float epsilon = call->scalars[0];
    const float *means = call->reads[2], *variances = call->reads[3];
    float *restrict scale_gradient = call->writes[0], *restrict shift_gradient = call->writes[1];

    jw_fill(scale_gradient, 0.0f, features);
    jw_fill(shift_gradient, 0.0f, features);
    for (jw_index r = 0; r < rows; r++) {
        const float *restrict x = (const float *)call->reads[0] + r * features;
        const float *restrict dy = (const float *)call->reads[1] + r * features;
        const float mean = means[r], factor = 1.0f / sqrtf(variances[r] + epsilon);
        for (jw_index f = 0; f < features; f++) {
            scale_gradient[f] = JW_FMA(dy[f], (x[f] - mean) * factor, scale_gradient[f]);
            shift_gradient[f] += dy[f];
        }
    }
}
