/* Blocks of a convolution: between parts of its image and of its result, each a tensor of its own. A
 * block is a convolution with so many channels, whose sums may go on from those of other blocks. */
#include "conv2d.h"
#include "kernels.h"

#define CONV_ATTRIBUTES 15

static jw_conv block_of(const int32_t *a) {
    jw_conv conv = jw_conv_of(a);
    conv.is_part = 1;
    return conv;
}

static int continues(const int32_t *a) {
    return a[CONV_ATTRIBUTES] != 0;
}

void jw_conv2d_block_forward(const jw_call *call) {
    const jw_conv conv = block_of(call->attributes);
    const int goes_on = continues(call->attributes);
    if (goes_on) {
        jw_take_over(call->writes[0], call->reads[2],
                     conv.batch * conv.out_channels * conv.out_plane);
    }
    jw_conv_forward(&conv, call->reads[0], call->reads[1], conv.has_bias ? call->reads[2] : NULL,
                    goes_on, call->writes[0], call->workspace);
}

void jw_conv2d_block_input_gradient(const jw_call *call) {
    const jw_conv conv = block_of(call->attributes);
    const int goes_on = continues(call->attributes);
    if (goes_on) {
        jw_take_over(call->writes[0], call->reads[2],
                     conv.batch * conv.in_channels * conv.in_plane);
    }
    jw_conv_gather(&conv, call->reads[0], call->reads[1], goes_on, call->writes[0],
                   call->workspace);
}

void jw_conv2d_block_columns_gradient(const jw_call *call) {
    const jw_conv conv = block_of(call->attributes);
    const int goes_on = continues(call->attributes);
    if (goes_on) {
        jw_take_over(call->writes[0], call->reads[2],
                     conv.in_channels * conv.taps * conv.batch * conv.out_plane);
    }
    jw_conv_columns(&conv, call->reads[0], call->reads[1], goes_on, call->writes[0],
                    call->workspace);
}

static size_t workspace_of(const int32_t *attributes, jw_conv_role role) {
    const jw_conv conv = block_of(attributes);
    return jw_conv_workspace(&conv, role);
}

size_t jw_conv2d_block_forward_workspace(const int32_t *attributes) {
    return workspace_of(attributes, JW_CONV_FORWARD);
}

size_t jw_conv2d_block_input_gradient_workspace(const int32_t *attributes) {
    return workspace_of(attributes, JW_CONV_GATHER);
}

size_t jw_conv2d_block_columns_gradient_workspace(const int32_t *attributes) {
    return workspace_of(attributes, JW_CONV_COLUMNS);
}
