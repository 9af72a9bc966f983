/* Parts of a convolution: a convolution whose one group has some of the output channels alone. Its
 * tiles are those of the whole convolution, so that all sums have the same order. */
#include "conv2d.h"
#include "kernels.h"

#define CONV_ATTRIBUTES 15

typedef struct {
    jw_conv conv;
    jw_index first; /* output channel */
} part;

static part part_of(const int32_t *a) {
    part p = {jw_conv_of(a), a[CONV_ATTRIBUTES]};
    p.conv.group_out = a[CONV_ATTRIBUTES + 1];
    p.conv.is_part = 1;
    return p;
}

/* Limit a convolution to some input channels; returns the first one. */
static jw_index limit_inputs(jw_conv *conv, const int32_t *range) {
    conv->group_in = range[1];
    conv->is_part = 1;
    return range[0];
}

static jw_index image_floats(const jw_conv *conv) {
    return conv->batch * conv->in_channels * conv->in_plane;
}

void jw_conv2d_part_forward(const jw_call *call) {
    const part p = part_of(call->attributes);
    float *output = call->writes[0];
    if (p.first > 0) {
        jw_take_over(output, call->reads[2 + p.conv.has_bias],
                     p.conv.batch * p.conv.out_channels * p.conv.out_plane);
    }
    jw_conv_forward(&p.conv, call->reads[0], call->reads[1],
                    p.conv.has_bias ? call->reads[2] : NULL, 0, output + p.first * p.conv.out_plane,
                    call->workspace);
}

void jw_conv2d_part_input_gradient(const jw_call *call) {
    const part p = part_of(call->attributes);
    const float *output_gradient = call->reads[0];
    float *input_gradient = call->writes[0];
    if (p.first > 0) {
        jw_take_over(input_gradient, call->reads[2], image_floats(&p.conv));
    }
    jw_conv_gather(&p.conv, output_gradient + p.first * p.conv.out_plane, call->reads[1],
                   p.first > 0, input_gradient, call->workspace);
}

void jw_conv2d_part_columns_gradient(const jw_call *call) {
    part p = part_of(call->attributes);
    const jw_index first_input = limit_inputs(&p.conv, call->attributes + CONV_ATTRIBUTES + 2);
    const float *output_gradient = call->reads[0], *weight = call->reads[1];
    float *columns = call->writes[0];
    if (p.first > 0) {
        jw_take_over(columns, call->reads[2],
                     p.conv.group_in * p.conv.taps * p.conv.batch * p.conv.out_plane);
    }
    jw_conv_columns(&p.conv, output_gradient + p.first * p.conv.out_plane,
                    weight + first_input * p.conv.taps, p.first > 0, columns, call->workspace);
}

void jw_conv2d_part_fold(const jw_call *call) {
    jw_conv conv = jw_conv_of(call->attributes);
    const jw_index first_input = limit_inputs(&conv, call->attributes + CONV_ATTRIBUTES);
    float *input_gradient = call->writes[0];
    if (first_input > 0) {
        jw_take_over(input_gradient, call->reads[1], image_floats(&conv));
    }
    jw_conv_fold(&conv, call->reads[0], input_gradient + first_input * conv.in_plane,
                 call->workspace);
}

void jw_conv2d_part_parameter_gradient(const jw_call *call) {
    const part p = part_of(call->attributes);
    const float *output_gradient = call->reads[1];
    const void *const reads[] = {call->reads[0], output_gradient + p.first * p.conv.out_plane};
    jw_call shifted = *call;
    shifted.reads = reads;
    jw_conv_parameter_gradient(&p.conv, &shifted);
}

static size_t workspace_of(const int32_t *attributes, jw_conv_role role) {
    const part p = part_of(attributes);
    return jw_conv_workspace(&p.conv, role);
}

size_t jw_conv2d_part_forward_workspace(const int32_t *attributes) {
    return workspace_of(attributes, JW_CONV_FORWARD);
}

size_t jw_conv2d_part_input_gradient_workspace(const int32_t *attributes) {
    return workspace_of(attributes, JW_CONV_GATHER);
}

size_t jw_conv2d_part_parameter_gradient_workspace(const int32_t *attributes) {
    return workspace_of(attributes, JW_CONV_PARAMETER_GRADIENT);
}

size_t jw_conv2d_part_columns_gradient_workspace(const int32_t *attributes) {
    part p = part_of(attributes);
    limit_inputs(&p.conv, attributes + CONV_ATTRIBUTES + 2);
    return jw_conv_workspace(&p.conv, JW_CONV_COLUMNS);
}

size_t jw_conv2d_part_fold_workspace(const int32_t *attributes) {
    jw_conv conv = jw_conv_of(attributes);
    limit_inputs(&conv, attributes + CONV_ATTRIBUTES);
    return jw_conv_workspace(&conv, JW_CONV_FOLD);
}
