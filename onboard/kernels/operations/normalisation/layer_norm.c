/* Layer and RMS normalisation over the features of each row, and group normalisation over the
 * channels of each group. Variances are biased. */
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

/* Layer normalisation without means and shifts, Zhang and Sennrich 2019. */
void jw_rms_norm_forward(const jw_call *call) {
    const jw_index rows = call->attributes[0], features = call->attributes[1];
    const float epsilon = call->scalars[0], count = (float)features;
    const float *restrict scale = call->reads[1];
    float *mean_squares = call->writes[1];

    for (jw_index r = 0; r < rows; r++) {
        const float *x = (const float *)call->reads[0] + r * features;
        float *restrict y = (float *)call->writes[0] + r * features;
        float lanes[JW_LANES];
        jw_clear_lanes(lanes);
        JW_ADD_PRODUCTS(lanes, features, x[i], x[i]);
        const float mean_square = jw_fold_lanes(lanes) / count;
        const float factor = 1.0f / sqrtf(mean_square + epsilon);
        for (jw_index f = 0; f < features; f++) {
            y[f] = x[f] * factor * scale[f];
        }
        mean_squares[r] = mean_square;
    }
}

/* With g = dy * scale and x^ = x / root mean square: dx = (g - x^ * mean(g * x^)) / root. */
void jw_rms_norm_input_gradient(const jw_call *call) {
    const jw_index rows = call->attributes[0], features = call->attributes[1];
    const float epsilon = call->scalars[0], count = (float)features;
    const float *scale = call->reads[2], *mean_squares = call->reads[3];

    for (jw_index r = 0; r < rows; r++) {
        const float *x = (const float *)call->reads[0] + r * features;
        const float *dy = (const float *)call->reads[1] + r * features;
        float *dx = (float *)call->writes[0] + r * features;
        const float factor = 1.0f / sqrtf(mean_squares[r] + epsilon);
        float products[JW_LANES];
        jw_clear_lanes(products);
        JW_ADD_PRODUCTS(products, features, dy[i] * scale[i], x[i]);
        const float slope = -jw_fold_lanes(products) * factor * factor / count;
        JW_INDEPENDENT
        for (jw_index f = 0; f < features; f++) {
            dx[f] = factor * JW_FMA(dy[f], scale[f], slope * x[f]);
        }
    }
}

void jw_rms_norm_parameter_gradient(const jw_call *call) {
    const jw_index rows = call->attributes[0], features = call->attributes[1];
    const float epsilon = call->scalars[0];
    const float *mean_squares = call->reads[2];
    float *restrict scale_gradient = call->writes[0];

    jw_fill(scale_gradient, 0.0f, features);
    for (jw_index r = 0; r < rows; r++) {
        const float *restrict x = (const float *)call->reads[0] + r * features;
        const float *restrict dy = (const float *)call->reads[1] + r * features;
        const float factor = 1.0f / sqrtf(mean_squares[r] + epsilon);
        for (jw_index f = 0; f < features; f++) {
            scale_gradient[f] = JW_FMA(dy[f], x[f] * factor, scale_gradient[f]);
        }
    }
}

/* Wu and He 2018. A group's channels are adjacent: its elements are one row. */
typedef struct {
    jw_index batch, channels, plane, groups, group; /* `group`: channels of one group */
    float count;                                    /* elements of a group */
} group_shape;

static group_shape group_shape_of(const int32_t *a) {
    const jw_index group = a[1] / a[3];
    const group_shape s = {a[0], a[1], a[2], a[3], group, (float)group * (float)a[2]};
    return s;
}

void jw_group_norm_forward(const jw_call *call) {
    const group_shape s = group_shape_of(call->attributes);
    const float epsilon = call->scalars[0];
    const float *scale = call->reads[1], *shift = call->reads[2];
    const float *restrict x = call->reads[0];
    float *restrict y = call->writes[0], *means = call->writes[1], *variances = call->writes[2];

    for (jw_index r = 0; r < s.batch * s.groups; r++) {
        const jw_index first = r % s.groups * s.group, elements = s.group * s.plane;
        float lanes[JW_LANES];
        const float mean = jw_sum(x, elements) / s.count;
        jw_clear_lanes(lanes);
        JW_ADD_PRODUCTS(lanes, elements, x[i] - mean, x[i] - mean);
        const float variance = jw_fold_lanes(lanes) / s.count;
        for (jw_index c = first; c < first + s.group; c++, x += s.plane, y += s.plane) {
            const float factor = scale[c] / sqrtf(variance + epsilon), offset = shift[c];
            for (jw_index i = 0; i < s.plane; i++) {
                y[i] = JW_FMA(x[i] - mean, factor, offset);
            }
        }
        means[r] = mean;
        variances[r] = variance;
    }
}

/* As for layer norm, over the elements of a group. */
void jw_group_norm_input_gradient(const jw_call *call) {
    const group_shape s = group_shape_of(call->attributes);
    const float epsilon = call->scalars[0];
    const float *input = call->reads[0], *output_gradient = call->reads[1];
    const float *scale = call->reads[2], *means = call->reads[3], *variances = call->reads[4];
    float *input_gradient = call->writes[0];

    for (jw_index r = 0; r < s.batch * s.groups; r++) {
        const jw_index first = r % s.groups * s.group, at = r * s.group * s.plane;
        const float mean = means[r], factor = 1.0f / sqrtf(variances[r] + epsilon);
        float sums[JW_LANES], products[JW_LANES];
        jw_clear_lanes(sums);
        jw_clear_lanes(products);
        for (jw_index c = 0; c < s.group; c++) {
            const float *x = input + at + c * s.plane, *dy = output_gradient + at + c * s.plane;
            const float weight = scale[first + c];
            JW_ADD_PRODUCTS(sums, s.plane, dy[i], weight);
            JW_ADD_PRODUCTS(products, s.plane, dy[i] * weight, x[i] - mean);
        }
        const float offset = -jw_fold_lanes(sums) / s.count;
        const float slope = -jw_fold_lanes(products) * factor * factor / s.count;
        for (jw_index c = 0; c < s.group; c++) {
            const float *x = input + at + c * s.plane, *dy = output_gradient + at + c * s.plane;
            float *dx = input_gradient + at + c * s.plane;
            const float weight = scale[first + c];
            JW_INDEPENDENT
            for (jw_index i = 0; i < s.plane; i++) {
                dx[i] = factor * JW_FMA(dy[i], weight, JW_FMA(slope, x[i] - mean, offset));
            }
        }
    }
}

void jw_group_norm_parameter_gradient(const jw_call *call) {
    const group_shape s = group_shape_of(call->attributes);
    const float epsilon = call->scalars[0];
    const float *input = call->reads[0], *output_gradient = call->reads[1];
    const float *means = call->reads[2], *variances = call->reads[3];
    float *scale_gradient = call->writes[0], *shift_gradient = call->writes[1];

    for (jw_index c = 0; c < s.channels; c++) {
        float products[JW_LANES], sums[JW_LANES];
        jw_clear_lanes(products);
        jw_clear_lanes(sums);
        for (jw_index n = 0; n < s.batch; n++) {
            const jw_index r = n * s.groups + c / s.group;
            const float mean = means[r], factor = 1.0f / sqrtf(variances[r] + epsilon);
            const float *x = input + (n * s.channels + c) * s.plane;
            const float *dy = output_gradient + (n * s.channels + c) * s.plane;
            JW_ADD_PRODUCTS(products, s.plane, (x[i] - mean) * factor, dy[i]);
            jw_add_sum(sums, dy, s.plane);
        }
        scale_gradient[c] = jw_fold_lanes(products);
        shift_gradient[c] = jw_fold_lanes(sums);
    }
}
