/* Batch normalisation with the statistics of the batch (training mode) or with frozen ones. Variances
 * are biased, except for the running variance, which averages unbiased ones. */
#include "kernels.h"

typedef struct {
    jw_index batch, channels, plane;
    float count; /* elements of a channel */
} shape;

static shape shape_of(const int32_t *a) {
    const shape s = {a[0], a[1], a[2], (float)a[0] * (float)a[2]};
    return s;
}

void jw_batch_norm_forward(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    const float epsilon = call->scalars[0];
    const float *restrict input = call->reads[0], *scale = call->reads[1], *shift = call->reads[2];
    float *restrict output = call->writes[0], *means = call->writes[1];
    float *variances = call->writes[2];

    for (jw_index c = 0; c < s.channels; c++) {
        float lanes[JW_LANES];
        jw_clear_lanes(lanes);
        for (jw_index n = 0; n < s.batch; n++) {
            jw_add_sum(lanes, input + (n * s.channels + c) * s.plane, s.plane);
        }
        const float mean = jw_fold_lanes(lanes) / s.count;
        jw_clear_lanes(lanes);
        for (jw_index n = 0; n < s.batch; n++) {
            const float *x = input + (n * s.channels + c) * s.plane;
            JW_ADD_PRODUCTS(lanes, s.plane, x[i] - mean, x[i] - mean);
        }
        const float variance = jw_fold_lanes(lanes) / s.count;
        const float factor = scale[c] / sqrtf(variance + epsilon), offset = shift[c];
        for (jw_index n = 0; n < s.batch; n++) {
            const float *x = input + (n * s.channels + c) * s.plane;
            float *y = output + (n * s.channels + c) * s.plane;
            for (jw_index i = 0; i < s.plane; i++) {
                y[i] = JW_FMA(x[i] - mean, factor, offset);
            }
        }
        means[c] = mean;
        variances[c] = variance;
    }
}

void jw_batch_norm_parameter_gradient(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    const float epsilon = call->scalars[0];
    const float *input = call->reads[0], *output_gradient = call->reads[1];
    const float *means = call->reads[2], *variances = call->reads[3];
    float *scale_gradient = call->writes[0], *shift_gradient = call->writes[1];

    for (jw_index c = 0; c < s.channels; c++) {
        const float mean = means[c];
        float products[JW_LANES], sums[JW_LANES];
        jw_clear_lanes(products);
        jw_clear_lanes(sums);
        for (jw_index n = 0; n < s.batch; n++) {
            const float *x = input + (n * s.channels + c) * s.plane;
            const float *dy = output_gradient + (n * s.channels + c) * s.plane;
            JW_ADD_PRODUCTS(products, s.plane, x[i] - mean, dy[i]);
            jw_add_sum(sums, dy, s.plane);
        }
        scale_gradient[c] = jw_fold_lanes(products) / sqrtf(variances[c] + epsilon);
        shift_gradient[c] = jw_fold_lanes(sums);
    }
}

/* With x^ = (x - mean) / deviation over n elements:
 * dx = scale / deviation * (dy - sum(dy) / n - x^ * sum(dy * x^) / n), Ioffe and Szegedy 2015. */
void jw_batch_norm_input_gradient(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    const float epsilon = call->scalars[0];
    const float *input = call->reads[0], *output_gradient = call->reads[1];
    const float *scale = call->reads[2], *means = call->reads[3], *variances = call->reads[4];
    const float *scale_gradient = call->reads[5], *shift_gradient = call->reads[6];
    float *input_gradient = call->writes[0];

    for (jw_index c = 0; c < s.channels; c++) {
        const float mean = means[c];
        const float inverse_deviation = 1.0f / sqrtf(variances[c] + epsilon);
        const float factor = scale[c] * inverse_deviation;
        const float slope = -factor * inverse_deviation * scale_gradient[c] / s.count;
        const float offset = -factor * shift_gradient[c] / s.count;
        for (jw_index n = 0; n < s.batch; n++) {
            const float *x = input + (n * s.channels + c) * s.plane;
            const float *dy = output_gradient + (n * s.channels + c) * s.plane;
            float *dx = input_gradient + (n * s.channels + c) * s.plane;
            JW_INDEPENDENT
            for (jw_index i = 0; i < s.plane; i++) {
                dx[i] = JW_FMA(factor, dy[i], JW_FMA(slope, x[i] - mean, offset));
            }
        }
    }
}

void jw_batch_norm_statistics_update(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    const float momentum = call->scalars[0], keep = 1.0f - momentum;
    const float unbiased = s.count > 1.0f ? s.count / (s.count - 1.0f) : 1.0f;
    const float *mean = call->reads[0], *variance = call->reads[1];
    const float *running_mean = call->reads[2], *running_variance = call->reads[3];
    float *next_mean = call->writes[0], *next_variance = call->writes[1];

    JW_INDEPENDENT
    for (jw_index c = 0; c < s.channels; c++) {
        next_mean[c] = JW_FMA(keep, running_mean[c], momentum * mean[c]);
    }
    JW_INDEPENDENT
    for (jw_index c = 0; c < s.channels; c++) {
        next_variance[c] = JW_FMA(keep, running_variance[c], momentum * unbiased * variance[c]);
    }
}

void jw_batch_norm_frozen_forward(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    const float epsilon = call->scalars[0];
    const float *input = call->reads[0], *scale = call->reads[1], *shift = call->reads[2];
    const float *means = call->reads[3], *variances = call->reads[4];
    float *output = call->writes[0];

    for (jw_index p = 0; p < s.batch * s.channels; p++) {
        const jw_index c = p % s.channels;
        const float mean = means[c], offset = shift[c];
        const float factor = scale[c] / sqrtf(variances[c] + epsilon);
        const float *x = input + p * s.plane;
        float *y = output + p * s.plane;
        JW_INDEPENDENT
        for (jw_index i = 0; i < s.plane; i++) {
            y[i] = JW_FMA(x[i] - mean, factor, offset);
        }
    }
}

void jw_batch_norm_frozen_input_gradient(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    const float epsilon = call->scalars[0];
    const float *output_gradient = call->reads[0];
    const float *scale = call->reads[1], *variances = call->reads[2];
    float *input_gradient = call->writes[0];

    for (jw_index p = 0; p < s.batch * s.channels; p++) {
        const jw_index c = p % s.channels;
        const float factor = scale[c] / sqrtf(variances[c] + epsilon);
        const float *dy = output_gradient + p * s.plane;
        float *dx = input_gradient + p * s.plane;
        JW_INDEPENDENT
        for (jw_index i = 0; i < s.plane; i++) {
            dx[i] = factor * dy[i];
        }
    }
}
