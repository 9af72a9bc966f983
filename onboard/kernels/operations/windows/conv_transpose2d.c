/* Transposed convolution: the transpose of a convolution that reads the output's shape and writes the
 * input's. Its kernels are that convolution's, with operands exchanged. */
#include "conv2d.h"
#include "kernels.h"

#define CONV_ATTRIBUTES 15

/* Padding after the last element with which the convolution has `in` positions in `out`. */
static int32_t padding_after(int32_t in, int32_t out, int32_t kernel, int32_t stride,
                             int32_t pad_before) {
    const int64_t needed = ((int64_t)in - 1) * stride + kernel - out - pad_before;
    return needed > 0 ? (int32_t)needed : 0;
}

/* Attributes of the convolution without bias, from those of the transposed one. */
static void exchange(const int32_t *a, int32_t attributes[CONV_ATTRIBUTES]) {
    const int32_t exchanged[CONV_ATTRIBUTES] = {
        a[0],  /* batch */
        a[4],  /* in_channels */
        a[5],  /* in_height */
        a[6],  /* in_width */
        a[1],  /* out_channels */
        a[7],  /* kernel_height */
        a[8],  /* kernel_width */
        a[9],  /* stride_height */
        a[10], /* stride_width */
        a[11], /* pad_top */
        padding_after(a[2], a[5], a[7], a[9], a[11]),
        a[12], /* pad_left */
        padding_after(a[3], a[6], a[8], a[10], a[12]),
        a[13], /* groups */
        0,     /* bias */
    };
    memcpy(attributes, exchanged, sizeof exchanged);
}

void jw_conv_transpose2d_forward(const jw_call *call) {
    int32_t attributes[CONV_ATTRIBUTES];
    exchange(call->attributes, attributes);
    const jw_conv conv = jw_conv_of(attributes);
    jw_call exchanged = *call;
    exchanged.attributes = attributes;
    jw_conv2d_input_gradient(&exchanged);

    const int has_bias = call->attributes[14] != 0;
    const float *bias = has_bias ? call->reads[2] : NULL;
    float *output = call->writes[0];
    for (jw_index p = 0; has_bias && p < conv.batch * conv.in_channels; p++) {
        const float offset = bias[p % conv.in_channels];
        float *y = output + p * conv.in_plane;
        for (jw_index i = 0; i < conv.in_plane; i++) {
            y[i] += offset;
        }
    }
}

void jw_conv_transpose2d_input_gradient(const jw_call *call) {
    int32_t attributes[CONV_ATTRIBUTES];
    exchange(call->attributes, attributes);
    jw_call exchanged = *call;
    exchanged.attributes = attributes;
    jw_conv2d_forward(&exchanged);
}

void jw_conv_transpose2d_parameter_gradient(const jw_call *call) {
    int32_t attributes[CONV_ATTRIBUTES];
    exchange(call->attributes, attributes);
    const void *const reads[] = {call->reads[1], call->reads[0]};
    jw_call exchanged = *call;
    exchanged.attributes = attributes;
    exchanged.reads = reads;
    jw_conv2d_parameter_gradient(&exchanged);

    if (call->attributes[14] != 0) {
        const jw_conv conv = jw_conv_of(attributes);
        jw_sum_over_positions(conv.batch, conv.in_channels * conv.in_plane, conv.in_channels,
                              conv.in_plane, call->reads[1], call->writes[1]);
    }
}

size_t jw_conv_transpose2d_forward_workspace(const int32_t *attributes) {
    int32_t exchanged[CONV_ATTRIBUTES];
    exchange(attributes, exchanged);
    return jw_conv2d_input_gradient_workspace(exchanged);
}

size_t jw_conv_transpose2d_input_gradient_workspace(const int32_t *attributes) {
    int32_t exchanged[CONV_ATTRIBUTES];
    exchange(attributes, exchanged);
    return jw_conv2d_forward_workspace(exchanged);
}

size_t jw_conv_transpose2d_parameter_gradient_workspace(const int32_t *attributes) {
    int32_t exchanged[CONV_ATTRIBUTES];
    exchange(attributes, exchanged);
    return jw_conv2d_parameter_gradient_workspace(exchanged);
}
