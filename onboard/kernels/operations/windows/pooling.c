/* Max and average pooling over windows of a plane, average pooling over whole planes, and upsampling
 * of planes. */
#include "kernels.h"

typedef struct {
    jw_index planes;
    jw_axis y, x;
} shape;

static shape shape_of(const int32_t *a) {
    shape s;
    s.planes = (jw_index)a[0] * a[1];
    s.y = jw_axis_of(a[2], a[4], a[6], a[8], a[9], 1);
    s.x = jw_axis_of(a[3], a[5], a[7], a[10], a[11], 1);
    return s;
}

static int is_inside(const jw_axis *axis, jw_index source) {
    return source >= 0 && source < axis->in;
}

/* True if x exceeds the maximum so far; NaNs win, so that they propagate. */
static inline int is_greater(float x, float best) {
    return x > best || x != x;
}

void jw_max_pool2d_forward(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    const float *input = call->reads[0];
    float *restrict best = call->writes[0];

    for (jw_index p = 0; p < s.planes; p++, input += s.y.in * s.x.in) {
        for (jw_index y = 0; y < s.y.out; y++, best += s.x.out) {
            jw_fill(best, -HUGE_VALF, s.x.out);
            for (jw_index ky = 0; ky < s.y.kernel; ky++) {
                const jw_index row = jw_source(&s.y, y, ky);
                if (!is_inside(&s.y, row)) {
                    continue;
                }
                for (jw_index kx = 0; kx < s.x.kernel; kx++) {
                    const float *source = input + row * s.x.in;
                    const jw_index shift = jw_source(&s.x, 0, kx), last = jw_last(&s.x, kx);
                    for (jw_index x = jw_first(&s.x, kx); x < last; x++) {
                        const float value = source[x * s.x.stride + shift];
                        best[x] = is_greater(value, best[x]) ? value : best[x];
                    }
                }
            }
        }
    }
}

size_t jw_max_pool2d_input_gradient_workspace(const int32_t *attributes) {
    const shape s = shape_of(attributes);
    return (size_t)s.x.out * (sizeof(float) + sizeof(int32_t));
}

/* Recomputes the maxima of a row of windows and their positions, then adds the gradients there. */
void jw_max_pool2d_input_gradient(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    const jw_index in_plane = s.y.in * s.x.in;
    const float *input = call->reads[0], *output_gradient = call->reads[1];
    float *input_gradient = call->writes[0];
    int32_t *restrict where = call->workspace;
    float *restrict best = (float *)(where + s.x.out);

    jw_fill(input_gradient, 0.0f, s.planes * in_plane);
    for (jw_index p = 0; p < s.planes; p++, input += in_plane, input_gradient += in_plane) {
        for (jw_index y = 0; y < s.y.out; y++, output_gradient += s.x.out) {
            jw_fill(best, -HUGE_VALF, s.x.out);
            for (jw_index x = 0; x < s.x.out; x++) {
                where[x] = -1;
            }
            for (jw_index ky = 0; ky < s.y.kernel; ky++) {
                const jw_index row = jw_source(&s.y, y, ky);
                if (!is_inside(&s.y, row)) {
                    continue;
                }
                for (jw_index kx = 0; kx < s.x.kernel; kx++) {
                    const float *source = input + row * s.x.in;
                    const jw_index shift = jw_source(&s.x, 0, kx), last = jw_last(&s.x, kx);
                    for (jw_index x = jw_first(&s.x, kx); x < last; x++) {
                        const jw_index column = x * s.x.stride + shift;
                        const float value = source[column];
                        const int greater = is_greater(value, best[x]) || where[x] < 0;
                        best[x] = greater ? value : best[x];
                        where[x] = greater ? (int32_t)(row * s.x.in + column) : where[x];
                    }
                }
            }
            for (jw_index x = 0; x < s.x.out; x++) {
                if (where[x] >= 0) {
                    input_gradient[where[x]] += output_gradient[x];
                }
            }
        }
    }
}

/* Padding counts as zeros: the divisor is the size of the whole window. */
void jw_average_pool2d_forward(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    const float share = 1.0f / (float)(s.y.kernel * s.x.kernel);
    const float *input = call->reads[0];
    float *restrict sum = call->writes[0];

    for (jw_index p = 0; p < s.planes; p++, input += s.y.in * s.x.in) {
        for (jw_index y = 0; y < s.y.out; y++, sum += s.x.out) {
            jw_fill(sum, 0.0f, s.x.out);
            for (jw_index ky = 0; ky < s.y.kernel; ky++) {
                const jw_index row = jw_source(&s.y, y, ky);
                if (!is_inside(&s.y, row)) {
                    continue;
                }
                for (jw_index kx = 0; kx < s.x.kernel; kx++) {
                    const float *source = input + row * s.x.in;
                    const jw_index shift = jw_source(&s.x, 0, kx), last = jw_last(&s.x, kx);
                    for (jw_index x = jw_first(&s.x, kx); x < last; x++) {
                        sum[x] += source[x * s.x.stride + shift];
                    }
                }
            }
            for (jw_index x = 0; x < s.x.out; x++) {
                sum[x] *= share;
            }
        }
    }
}

void jw_average_pool2d_input_gradient(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    const jw_index in_plane = s.y.in * s.x.in;
    const float share = 1.0f / (float)(s.y.kernel * s.x.kernel);
    const float *restrict output_gradient = call->reads[0];
    float *restrict input_gradient = call->writes[0];

    jw_fill(input_gradient, 0.0f, s.planes * in_plane);
    for (jw_index p = 0; p < s.planes; p++, input_gradient += in_plane) {
        for (jw_index y = 0; y < s.y.out; y++, output_gradient += s.x.out) {
            for (jw_index ky = 0; ky < s.y.kernel; ky++) {
                const jw_index row = jw_source(&s.y, y, ky);
                if (!is_inside(&s.y, row)) {
                    continue;
                }
                for (jw_index kx = 0; kx < s.x.kernel; kx++) {
                    float *target = input_gradient + row * s.x.in;
                    const jw_index shift = jw_source(&s.x, 0, kx), last = jw_last(&s.x, kx);
                    JW_INDEPENDENT
                    for (jw_index x = jw_first(&s.x, kx); x < last; x++) {
                        target[x * s.x.stride + shift] += share * output_gradient[x];
                    }
                }
            }
        }
    }
}

void jw_global_average_pool_forward(const jw_call *call) {
    const jw_index planes = (jw_index)call->attributes[0] * call->attributes[1];
    const jw_index plane = call->attributes[2];
    const float *input = call->reads[0];
    float *output = call->writes[0];
    for (jw_index p = 0; p < planes; p++) {
        output[p] = jw_sum(input + p * plane, plane) / (float)plane;
    }
}

void jw_global_average_pool_input_gradient(const jw_call *call) {
    const jw_index planes = (jw_index)call->attributes[0] * call->attributes[1];
    const jw_index plane = call->attributes[2];
    const float *output_gradient = call->reads[0];
    float *input_gradient = call->writes[0];
    for (jw_index p = 0; p < planes; p++) {
        jw_fill(input_gradient + p * plane, output_gradient[p] / (float)plane, plane);
    }
}

/* Every element becomes a rectangle of equal ones: the nearest element of the input. */
void jw_upsample_nearest2d_forward(const jw_call *call) {
    const int32_t *a = call->attributes;
    const jw_index rows = (jw_index)a[0] * a[1] * a[2], width = a[3];
    const jw_index factor_y = a[4], factor_x = a[5], out_width = width * factor_x;
    const float *restrict input = call->reads[0];
    float *restrict output = call->writes[0];

    for (jw_index r = 0; r < rows; r++, input += width, output += factor_y * out_width) {
        for (jw_index k = 0; k < factor_x; k++) {
            for (jw_index x = 0; x < width; x++) {
                output[x * factor_x + k] = input[x];
            }
        }
        for (jw_index y = 1; y < factor_y; y++) {
            memcpy(output + y * out_width, output, (size_t)out_width * sizeof(float));
        }
    }
}

void jw_upsample_nearest2d_input_gradient(const jw_call *call) {
    const int32_t *a = call->attributes;
    const jw_index rows = (jw_index)a[0] * a[1] * a[2], width = a[3];
    const jw_index factor_y = a[4], factor_x = a[5];
    const float *restrict output_gradient = call->reads[0];
    float *restrict sum = call->writes[0];

    for (jw_index r = 0; r < rows; r++, sum += width) {
        jw_fill(sum, 0.0f, width);
        for (jw_index y = 0; y < factor_y; y++, output_gradient += width * factor_x) {
            for (jw_index k = 0; k < factor_x; k++) {
                for (jw_index x = 0; x < width; x++) {
                    sum[x] += output_gradient[x * factor_x + k];
                }
            }
        }
    }
}
