/* What registry.c takes from the other files: one entry point a kind, and workspace queries. */
#ifndef JW_KERNELS_H
#define JW_KERNELS_H

#include "internal.h"

void jw_add_forward(const jw_call *call);
void jw_attention_context_forward(const jw_call *call);
void jw_attention_context_value_gradient(const jw_call *call);
void jw_attention_context_weights_gradient(const jw_call *call);
void jw_attention_scores_forward(const jw_call *call);
void jw_attention_scores_key_gradient(const jw_call *call);
void jw_attention_scores_query_gradient(const jw_call *call);
void jw_average_pool2d_forward(const jw_call *call);
void jw_average_pool2d_input_gradient(const jw_call *call);
void jw_batch_norm_forward(const jw_call *call);
void jw_batch_norm_input_gradient(const jw_call *call);
void jw_batch_norm_parameter_gradient(const jw_call *call);
void jw_batch_norm_statistics_update(const jw_call *call);
void jw_concat_forward(const jw_call *call);
void jw_concat_input_gradient(const jw_call *call);
void jw_conv2d_forward(const jw_call *call);
void jw_conv2d_input_gradient(const jw_call *call);
void jw_conv2d_parameter_gradient(const jw_call *call);
void jw_dropout(const jw_call *call);
void jw_embedding_forward(const jw_call *call);
void jw_embedding_parameter_gradient(const jw_call *call);
void jw_flatten(const jw_call *call);
void jw_gelu_forward(const jw_call *call);
void jw_gelu_input_gradient(const jw_call *call);
void jw_global_average_pool_forward(const jw_call *call);
void jw_global_average_pool_input_gradient(const jw_call *call);
void jw_gradient_accumulate(const jw_call *call);
void jw_layer_norm_forward(const jw_call *call);
void jw_layer_norm_input_gradient(const jw_call *call);
void jw_layer_norm_parameter_gradient(const jw_call *call);
void jw_linear_forward(const jw_call *call);
void jw_linear_input_gradient(const jw_call *call);
void jw_linear_parameter_gradient(const jw_call *call);
void jw_max_pool2d_forward(const jw_call *call);
void jw_max_pool2d_input_gradient(const jw_call *call);
void jw_mean_squared_error_forward(const jw_call *call);
void jw_mean_squared_error_input_gradient(const jw_call *call);
void jw_relu_forward(const jw_call *call);
void jw_relu_input_gradient(const jw_call *call);
void jw_sgd_update(const jw_call *call);
void jw_sgd_momentum_update(const jw_call *call);
void jw_sigmoid_forward(const jw_call *call);
void jw_sigmoid_input_gradient(const jw_call *call);
void jw_softmax_forward(const jw_call *call);
void jw_softmax_input_gradient(const jw_call *call);
void jw_softmax_cross_entropy_forward(const jw_call *call);
void jw_softmax_cross_entropy_input_gradient(const jw_call *call);
void jw_tanh_forward(const jw_call *call);
void jw_tanh_input_gradient(const jw_call *call);

size_t jw_attention_to_rows_workspace(const int32_t *attributes);
size_t jw_attention_to_square_workspace(const int32_t *attributes);
size_t jw_conv2d_forward_workspace(const int32_t *attributes);
size_t jw_conv2d_input_gradient_workspace(const int32_t *attributes);
size_t jw_conv2d_parameter_gradient_workspace(const int32_t *attributes);
size_t jw_linear_forward_workspace(const int32_t *attributes);
size_t jw_linear_input_gradient_workspace(const int32_t *attributes);
size_t jw_linear_parameter_gradient_workspace(const int32_t *attributes);
size_t jw_max_pool2d_input_gradient_workspace(const int32_t *attributes);

#endif
