/* Fully connected layers: output[rows, out] = input[rows, in] * weight[out, in]^T + bias. */
#include "kernels.h"

/* The features that an operation computes, of which an operand in memory may have more. weight has
 * these alone. */
typedef struct {
    jw_index rows, in, out; /* in memory */
    int has_bias;
    jw_index first, features;     /* output features */
    jw_index first_input, inputs; /* input features */
    int continues;                /* whether sums go on from what is in memory */
} shape;

static shape whole(const int32_t *a) {
    const shape s = {a[0], a[1], a[2], a[3] != 0, 0, a[2], 0, a[1], 0};
    return s;
}

static shape part(const int32_t *a) {
    const shape s = {a[0], a[1], a[2], a[3] != 0, a[4], a[5], a[6], a[7], 0};
    return s;
}

/* Whether other parts before it have written what a part writes. */
static int follows(const shape *s) {
    return s->first > 0 || s->first_input > 0;
}

static shape block(const int32_t *a) {
    shape s = whole(a);
    s.continues = a[4] != 0;
    return s;
}

/* Each element is one chain of additions: the bias, or if `continues` what is in memory, and then the
 * products in the order of the input features. */
static void forward(const shape *s, const jw_call *call) {
    const float *input = (const float *)call->reads[0] + s->first_input, *weight = call->reads[1];
    float *output = (float *)call->writes[0] + s->first;
    if (s->has_bias) {
        for (jw_index r = 0; r < s->rows; r++) {
            memcpy(output + r * s->out, call->reads[2], (size_t)s->features * sizeof(float));
        }
    }
    jw_matmul_chained(s->rows, s->features, s->inputs, jw_plain(input, s->in),
                      jw_transposed(weight, s->inputs), s->continues || s->has_bias, output, s->out,
                      call->workspace);
}

static void input_gradient(const shape *s, const jw_call *call) {
    const float *output_gradient = (const float *)call->reads[0] + s->first;
    float *found = (float *)call->writes[0] + s->first_input;
    jw_matmul_chained(s->rows, s->inputs, s->features, jw_plain(output_gradient, s->out),
                      jw_plain(call->reads[1], s->inputs), s->continues, found, s->in,
                      call->workspace);
}

static void parameter_gradient(const shape *s, const jw_call *call) {
    const float *input = (const float *)call->reads[0] + s->first_input;
    const float *restrict output_gradient = (const float *)call->reads[1] + s->first;
    jw_matmul(s->features, s->inputs, s->rows, 1.0f, jw_transposed(output_gradient, s->out),
              jw_plain(input, s->in), 0.0f, call->writes[0], s->inputs, call->workspace);
    if (s->has_bias) {
        float *restrict bias_gradient = call->writes[1];
        jw_fill(bias_gradient, 0.0f, s->features);
        for (jw_index r = 0; r < s->rows; r++) {
            for (jw_index o = 0; o < s->features; o++) {
                bias_gradient[o] += output_gradient[r * s->out + o];
            }
        }
    }
}

void jw_linear_forward(const jw_call *call) {
    const shape s = whole(call->attributes);
    forward(&s, call);
}

void jw_linear_input_gradient(const jw_call *call) {
    const shape s = whole(call->attributes);
    input_gradient(&s, call);
}

void jw_linear_parameter_gradient(const jw_call *call) {
    const shape s = whole(call->attributes);
    parameter_gradient(&s, call);
}

void jw_linear_part_forward(const jw_call *call) {
    shape s = part(call->attributes);
    s.continues = s.first_input > 0;
    if (follows(&s)) {
        jw_take_over(call->writes[0], call->reads[2 + s.has_bias], s.rows * s.out);
    }
    forward(&s, call);
}

void jw_linear_part_input_gradient(const jw_call *call) {
    shape s = part(call->attributes);
    s.continues = s.first > 0;
    if (follows(&s)) {
        jw_take_over(call->writes[0], call->reads[2], s.rows * s.in);
    }
    input_gradient(&s, call);
}

void jw_linear_part_parameter_gradient(const jw_call *call) {
    const shape s = part(call->attributes);
    parameter_gradient(&s, call);
}

void jw_linear_block_forward(const jw_call *call) {
    const shape s = block(call->attributes);
    if (s.continues) {
        jw_take_over(call->writes[0], call->reads[2], s.rows * s.out);
    }
    forward(&s, call);
}

void jw_linear_block_input_gradient(const jw_call *call) {
    const shape s = block(call->attributes);
    if (s.continues) {
        jw_take_over(call->writes[0], call->reads[2], s.rows * s.in);
    }
    input_gradient(&s, call);
}

static size_t forward_workspace(shape s) {
    return (size_t)jw_matmul_workspace(s.features, s.inputs) * sizeof(float);
}

static size_t input_gradient_workspace(shape s) {
    return (size_t)jw_matmul_workspace(s.inputs, s.features) * sizeof(float);
}

static size_t parameter_gradient_workspace(shape s) {
    return (size_t)jw_matmul_workspace(s.inputs, s.rows) * sizeof(float);
}

size_t jw_linear_forward_workspace(const int32_t *attributes) {
    return forward_workspace(whole(attributes));
}

size_t jw_linear_input_gradient_workspace(const int32_t *attributes) {
    return input_gradient_workspace(whole(attributes));
}

size_t jw_linear_parameter_gradient_workspace(const int32_t *attributes) {
    return parameter_gradient_workspace(whole(attributes));
}

size_t jw_linear_block_forward_workspace(const int32_t *attributes) {
    return forward_workspace(block(attributes));
}

size_t jw_linear_block_input_gradient_workspace(const int32_t *attributes) {
    return input_gradient_workspace(block(attributes));
}

size_t jw_linear_part_forward_workspace(const int32_t *attributes) {
    return forward_workspace(part(attributes));
}

size_t jw_linear_part_input_gradient_workspace(const int32_t *attributes) {
    return input_gradient_workspace(part(attributes));
}

size_t jw_linear_part_parameter_gradient_workspace(const int32_t *attributes) {
    return parameter_gradient_workspace(part(attributes));
}
