/* Parts of a convolution: a convolution whose one group has some of the output channels alone, and some
 * of the input channels. Its tiles are those of the whole convolution, so that all sums have the same
 * order. */
#include "conv2d.h"
#include "kernels.h"

#define CONV_ATTRIBUTES 15

typedef struct {
    jw_conv conv;
    jw_index first; /* output channel */
    jw_index first_input;
} part;

/* Limit a convolution to some input channels; returns the first one. */
static jw_index limit_inputs(jw_conv *conv, const int32_t *range) {
    conv->group_in = range[1];
    conv->filter = conv->group_in * conv->taps;
    conv->is_part = 1;
    return range[0];
}

static part part_of(const int32_t *a) {
    part p = {jw_conv_of(a), a[CONV_ATTRIBUTES], 0};
    p.conv.group_out = a[CONV_ATTRIBUTES + 1];
    p.first_input = limit_inputs(&p.conv, a + CONV_ATTRIBUTES + 2);
    return p;
}

/* Whether other parts before it have written what a part writes. */
static int follows(const part *p) {
    return p->first > 0 || p->first_input > 0;
}

static jw_index image_floats(const jw_conv *conv) {
    return conv->batch * conv->in_channels * conv->in_plane;
}

/* The part's channels in the image and in the result. */
static const float *of_image(const part *p, const float *image) {
    return image + p->first_input * p->conv.in_plane;
}

static const float *of_result(const part *p, const float *result) {
    return result + p->first * p->conv.out_plane;
}

void jw_conv2d_part_forward(const jw_call *call) {
    const part p = part_of(call->attributes);
    float *output = call->writes[0];
    if (follows(&p)) {
        jw_take_over(output, call->reads[2 + p.conv.has_bias],
                     p.conv.batch * p.conv.out_channels * p.conv.out_plane);
    }
    jw_conv_forward(&p.conv, of_image(&p, call->reads[0]), call->reads[1],
                    p.conv.has_bias ? call->reads[2] : NULL, p.first_input > 0,
                    output + p.first * p.conv.out_plane, call->workspace);
}

void jw_conv2d_part_input_gradient(const jw_call *call) {
    const part p = part_of(call->attributes);
    float *input_gradient = call->writes[0];
    if (follows(&p)) {
        jw_take_over(input_gradient, call->reads[2], image_floats(&p.conv));
    }
    jw_conv_gather(&p.conv, of_result(&p, call->reads[0]), call->reads[1], p.first > 0,
                   input_gradient + p.first_input * p.conv.in_plane, call->workspace);
}

void jw_conv2d_part_columns_gradient(const jw_call *call) {
    const part p = part_of(call->attributes);
    float *columns = call->writes[0];
    if (p.first > 0) {
        jw_take_over(columns, call->reads[2], p.conv.filter * p.conv.batch * p.conv.out_plane);
    }
    jw_conv_columns(&p.conv, of_result(&p, call->reads[0]), call->reads[1], p.first > 0, columns,
                    call->workspace);
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
    const void *const reads[] = {of_image(&p, call->reads[0]), of_result(&p, call->reads[1])};
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
    return workspace_of(attributes, JW_CONV_COLUMNS);
}

size_t jw_conv2d_part_fold_workspace(const int32_t *attributes) {
    jw_conv conv = jw_conv_of(attributes);
    limit_inputs(&conv, attributes + CONV_ATTRIBUTES);
    return jw_conv_workspace(&conv, JW_CONV_FOLD);
}
