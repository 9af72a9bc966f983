/* Fully connected layers: output[rows, out] = input[rows, in] * weight[out, in]^T + bias. */
#include "kernels.h"

typedef struct {
    jw_index rows, in, out;
    int has_bias;
} shape;

static shape shape_of(const int32_t *a) {
    const shape s = {a[0], a[1], a[2], a[3] != 0};
    return s;
}

void jw_linear_forward(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    const float *input = call->reads[0], *weight = call->reads[1];
    float *output = call->writes[0];
    if (s.has_bias) {
        for (jw_index r = 0; r < s.rows; r++) {
            memcpy(output + r * s.out, call->reads[2], (size_t)s.out * sizeof(float));
        }
    }
    jw_matmul(s.rows, s.out, s.in, 1.0f, jw_plain(input, s.in), jw_transposed(weight, s.in),
              s.has_bias ? 1.0f : 0.0f, output, s.out, call->workspace);
}

size_t jw_linear_forward_workspace(const int32_t *attributes) {
    const shape s = shape_of(attributes);
    return (size_t)jw_matmul_workspace(s.out, s.in) * sizeof(float);
}

void jw_linear_input_gradient(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    const float *output_gradient = call->reads[0], *weight = call->reads[1];
    jw_matmul(s.rows, s.in, s.out, 1.0f, jw_plain(output_gradient, s.out), jw_plain(weight, s.in),
              0.0f, call->writes[0], s.in, call->workspace);
}

size_t jw_linear_input_gradient_workspace(const int32_t *attributes) {
    const shape s = shape_of(attributes);
    return (size_t)jw_matmul_workspace(s.in, s.out) * sizeof(float);
}

void jw_linear_parameter_gradient(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    const float *input = call->reads[0], *restrict output_gradient = call->reads[1];
    jw_matmul(s.out, s.in, s.rows, 1.0f, jw_transposed(output_gradient, s.out),
              jw_plain(input, s.in), 0.0f, call->writes[0], s.in, call->workspace);
    if (s.has_bias) {
        float *restrict bias_gradient = call->writes[1];
        jw_fill(bias_gradient, 0.0f, s.out);
        for (jw_index r = 0; r < s.rows; r++) {
            for (jw_index o = 0; o < s.out; o++) {
                bias_gradient[o] += output_gradient[r * s.out + o];
            }
        }
    }
}

size_t jw_linear_parameter_gradient_workspace(const int32_t *attributes) {
    const shape s = shape_of(attributes);
    return (size_t)jw_matmul_workspace(s.in, s.rows) * sizeof(float);
}
