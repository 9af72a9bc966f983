/* Table of all kinds; profiler and export also read it as text. */
#include "kernels.h"

/* kind, attributes, scalars, run, workspace */
const jw_kernel jw_kernels[] = {
    {"adam.update", 1, 6, jw_adam_update, NULL},
    {"add.forward", 1, 0, jw_add_forward, NULL},
    {"attention_context.forward", 4, 0, jw_attention_context_forward,
     jw_attention_to_rows_workspace},
    {"attention_context.value_gradient", 4, 0, jw_attention_context_value_gradient,
     jw_attention_to_rows_workspace},
    {"attention_context.weights_gradient", 4, 0, jw_attention_context_weights_gradient,
     jw_attention_to_square_workspace},
    {"attention_scores.forward", 4, 0, jw_attention_scores_forward,
     jw_attention_to_square_workspace},
    {"attention_scores.key_gradient", 4, 0, jw_attention_scores_key_gradient,
     jw_attention_to_rows_workspace},
    {"attention_scores.query_gradient", 4, 0, jw_attention_scores_query_gradient,
     jw_attention_to_rows_workspace},
    {"average_pool2d.forward", 12, 0, jw_average_pool2d_forward, NULL},
    {"average_pool2d.input_gradient", 12, 0, jw_average_pool2d_input_gradient, NULL},
    {"batch_norm.forward", 3, 1, jw_batch_norm_forward, NULL},
    {"batch_norm.input_gradient", 3, 1, jw_batch_norm_input_gradient, NULL},
    {"batch_norm.parameter_gradient", 3, 1, jw_batch_norm_parameter_gradient, NULL},
    {"batch_norm.statistics_update", 3, 1, jw_batch_norm_statistics_update, NULL},
    {"batch_norm_frozen.forward", 3, 1, jw_batch_norm_frozen_forward, NULL},
    {"batch_norm_frozen.input_gradient", 3, 1, jw_batch_norm_frozen_input_gradient, NULL},
    {"batch_norm_frozen.parameter_gradient", 3, 1, jw_batch_norm_parameter_gradient, NULL},
    {"channel_scale.forward", 3, 0, jw_channel_scale, NULL},
    {"channel_scale.input_gradient", 3, 0, jw_channel_scale, NULL},
    {"channel_scale.scale_gradient", 3, 0, jw_channel_scale_scale_gradient, NULL},
    {"clamp.forward", 1, 2, jw_clamp_forward, NULL},
    {"clamp.input_gradient", 1, 2, jw_clamp_input_gradient, NULL},
    {"concat.forward", 3, 0, jw_concat_forward, NULL},
    {"concat.input_gradient", 3, 0, jw_concat_input_gradient, NULL},
    {"conv2d.forward", 15, 0, jw_conv2d_forward, jw_conv2d_forward_workspace},
    {"conv2d.input_gradient", 15, 0, jw_conv2d_input_gradient, jw_conv2d_input_gradient_workspace},
    {"conv2d.parameter_gradient", 15, 0, jw_conv2d_parameter_gradient,
     jw_conv2d_parameter_gradient_workspace},
    {"conv_transpose2d.forward", 15, 0, jw_conv_transpose2d_forward,
     jw_conv_transpose2d_forward_workspace},
    {"conv_transpose2d.input_gradient", 15, 0, jw_conv_transpose2d_input_gradient,
     jw_conv_transpose2d_input_gradient_workspace},
    {"conv_transpose2d.parameter_gradient", 15, 0, jw_conv_transpose2d_parameter_gradient,
     jw_conv_transpose2d_parameter_gradient_workspace},
    {"dropout.forward", 1, 2, jw_dropout, NULL},
    {"dropout.input_gradient", 1, 2, jw_dropout, NULL},
    {"embedding.forward", 3, 0, jw_embedding_forward, NULL},
    {"embedding.parameter_gradient", 3, 0, jw_embedding_parameter_gradient, NULL},
    {"flatten.forward", 1, 0, jw_flatten, NULL},
    {"flatten.input_gradient", 1, 0, jw_flatten, NULL},
    {"gelu.forward", 1, 0, jw_gelu_forward, NULL},
    {"gelu.input_gradient", 1, 0, jw_gelu_input_gradient, NULL},
    {"global_average_pool.forward", 3, 0, jw_global_average_pool_forward, NULL},
    {"global_average_pool.input_gradient", 3, 0, jw_global_average_pool_input_gradient, NULL},
    {"gradient.accumulate", 1, 0, jw_gradient_accumulate, NULL},
    {"group_norm.forward", 4, 1, jw_group_norm_forward, NULL},
    {"group_norm.input_gradient", 4, 1, jw_group_norm_input_gradient, NULL},
    {"group_norm.parameter_gradient", 4, 1, jw_group_norm_parameter_gradient, NULL},
    {"hard_sigmoid.forward", 1, 0, jw_hard_sigmoid_forward, NULL},
    {"hard_sigmoid.input_gradient", 1, 0, jw_hard_sigmoid_input_gradient, NULL},
    {"hard_swish.forward", 1, 0, jw_hard_swish_forward, NULL},
    {"hard_swish.input_gradient", 1, 0, jw_hard_swish_input_gradient, NULL},
    {"layer_norm.forward", 2, 1, jw_layer_norm_forward, NULL},
    {"layer_norm.input_gradient", 2, 1, jw_layer_norm_input_gradient, NULL},
    {"layer_norm.parameter_gradient", 2, 1, jw_layer_norm_parameter_gradient, NULL},
    {"leaky_relu.forward", 1, 1, jw_leaky_relu_forward, NULL},
    {"leaky_relu.input_gradient", 1, 1, jw_leaky_relu_input_gradient, NULL},
    {"linear.forward", 4, 0, jw_linear_forward, jw_linear_forward_workspace},
    {"linear.input_gradient", 4, 0, jw_linear_input_gradient, jw_linear_input_gradient_workspace},
    {"linear.parameter_gradient", 4, 0, jw_linear_parameter_gradient,
     jw_linear_parameter_gradient_workspace},
    {"max_pool2d.forward", 12, 0, jw_max_pool2d_forward, NULL},
    {"max_pool2d.input_gradient", 12, 0, jw_max_pool2d_input_gradient,
     jw_max_pool2d_input_gradient_workspace},
    {"mean_squared_error.forward", 1, 1, jw_mean_squared_error_forward, NULL},
    {"mean_squared_error.input_gradient", 1, 1, jw_mean_squared_error_input_gradient, NULL},
    {"multiply.forward", 1, 0, jw_multiply, NULL},
    {"multiply.left_gradient", 1, 0, jw_multiply, NULL},
    {"multiply.right_gradient", 1, 0, jw_multiply, NULL},
    {"relu.forward", 1, 0, jw_relu_forward, NULL},
    {"relu.input_gradient", 1, 0, jw_relu_input_gradient, NULL},
    {"rms_norm.forward", 2, 1, jw_rms_norm_forward, NULL},
    {"rms_norm.input_gradient", 2, 1, jw_rms_norm_input_gradient, NULL},
    {"rms_norm.parameter_gradient", 2, 1, jw_rms_norm_parameter_gradient, NULL},
    {"sgd.update", 1, 2, jw_sgd_update, NULL},
    {"sgd_momentum.update", 1, 3, jw_sgd_momentum_update, NULL},
    {"sgd_nesterov.update", 1, 3, jw_sgd_nesterov_update, NULL},
    {"sigmoid.forward", 1, 0, jw_sigmoid_forward, NULL},
    {"sigmoid.input_gradient", 1, 0, jw_sigmoid_input_gradient, NULL},
    {"silu.forward", 1, 0, jw_silu_forward, NULL},
    {"silu.input_gradient", 1, 0, jw_silu_input_gradient, NULL},
    {"softmax.forward", 2, 0, jw_softmax_forward, NULL},
    {"softmax.input_gradient", 2, 0, jw_softmax_input_gradient, NULL},
    {"softmax_cross_entropy.forward", 2, 1, jw_softmax_cross_entropy_forward, NULL},
    {"softmax_cross_entropy.input_gradient", 2, 1, jw_softmax_cross_entropy_input_gradient, NULL},
    {"strided_copy.forward", 14, 0, jw_strided_copy_forward, NULL},
    {"strided_copy.input_gradient", 14, 0, jw_strided_copy_input_gradient, NULL},
    {"tanh.forward", 1, 0, jw_tanh_forward, NULL},
    {"tanh.input_gradient", 1, 0, jw_tanh_input_gradient, NULL},
    {"upsample_nearest2d.forward", 6, 0, jw_upsample_nearest2d_forward, NULL},
    {"upsample_nearest2d.input_gradient", 6, 0, jw_upsample_nearest2d_input_gradient, NULL},
};

const size_t jw_kernel_count = sizeof jw_kernels / sizeof jw_kernels[0];

const jw_kernel *jw_find_kernel(const char *kind) {
    size_t first = 0, last = jw_kernel_count;
    while (first < last) {
        const size_t middle = first + (last - first) / 2;
        const int order = strcmp(kind, jw_kernels[middle].kind);
        if (order == 0) {
            return &jw_kernels[middle];
        }
        if (order < 0) {
            last = middle;
        } else {
            first = middle + 1;
        }
    }
    return NULL;
}
