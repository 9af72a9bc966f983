/* Some channels of a depthwise convolution, with its bits, even where it is a single one. */
#include "conv2d.h"
#include "kernels.h"

void jw_depthwise_part_forward(const jw_call *call) {
    const jw_conv conv = jw_conv_of(call->attributes);
    jw_depthwise_forward(&conv, call->reads[0], call->reads[1],
                         conv.has_bias ? call->reads[2] : NULL, call->writes[0], call->workspace);
}

void jw_depthwise_part_input_gradient(const jw_call *call) {
    const jw_conv conv = jw_conv_of(call->attributes);
    jw_depthwise_input_gradient(&conv, call->reads[0], call->reads[1], call->writes[0],
                                call->workspace);
}

void jw_depthwise_part_parameter_gradient(const jw_call *call) {
    const jw_conv conv = jw_conv_of(call->attributes);
    if (conv.has_bias) {
        jw_sum_over_positions(conv.batch, conv.out_channels * conv.out_plane, conv.out_channels,
                              conv.out_plane, call->reads[1], call->writes[1]);
    }
    jw_depthwise_weight_gradient(&conv, call->reads[0], call->reads[1], call->writes[0],
                                 call->workspace);
}

size_t jw_depthwise_part_forward_workspace(const int32_t *attributes) {
    const jw_conv conv = jw_conv_of(attributes);
    return (size_t)jw_depthwise_forward_workspace(&conv) * sizeof(float);
}

size_t jw_depthwise_part_input_gradient_workspace(const int32_t *attributes) {
    const jw_conv conv = jw_conv_of(attributes);
    return (size_t)jw_depthwise_input_gradient_workspace(&conv) * sizeof(float);
}

size_t jw_depthwise_part_parameter_gradient_workspace(const int32_t *attributes) {
    const jw_conv conv = jw_conv_of(attributes);
    return (size_t)jw_depthwise_weight_gradient_workspace(&conv) * sizeof(float);
}
