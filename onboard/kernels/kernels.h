/* Entry points of all kinds, and workspace queries, for registry.c.
 *
 * A comment names the operands of a kind with their shapes, `reads -> writes`, and its scalars.
 * Names in brackets are attributes of the kind. All elements are float32, except indices and
 * labels, which are int32. Images are NCHW and matrices row-major. A workspace query returns
 * bytes. */
#ifndef JW_KERNELS_H
#define JW_KERNELS_H

#include "internal.h"

/* left, right [elements] -> sum [elements] */
void jw_add_forward(const jw_call *call);
void jw_gradient_accumulate(const jw_call *call);

/* row = [batch, sequence, heads * head_features], square = [batch, heads, sequence, sequence] */

/* weights: square, value: row -> context: row */
void jw_attention_context_forward(const jw_call *call);
/* weights: square, context_gradient: row -> value_gradient: row */
void jw_attention_context_value_gradient(const jw_call *call);
/* context_gradient: row, value: row -> weights_gradient: square */
void jw_attention_context_weights_gradient(const jw_call *call);
/* query: row, key: row -> scores: square */
void jw_attention_scores_forward(const jw_call *call);
/* scores_gradient: square, query: row -> key_gradient: row */
void jw_attention_scores_key_gradient(const jw_call *call);
/* scores_gradient: square, key: row -> query_gradient: row */
void jw_attention_scores_query_gradient(const jw_call *call);
/* Workspace of the kinds that write a row, and of those that write a square. */
size_t jw_attention_to_rows_workspace(const int32_t *attributes);
size_t jw_attention_to_square_workspace(const int32_t *attributes);

/* Attention without a matrix of weights: queries = [batch, queries, heads * head_features], keys =
 * [batch, keys, key_heads * head_features], log_sum_exp [batch, heads, queries], which is +infinity
 * where a query attends to nothing; mask [mask_batch, mask_heads, mask_queries, keys] if these
 * attributes are not 0; scalars scale, probability, seed. */

/* If the attribute `packed` is 1, query, key and value are side by side in one operand, and so are
 * their gradients. */

/* query: queries, key: keys, value: keys, mask -> output: queries, log_sum_exp */
void jw_attention_forward(const jw_call *call);
/* query: queries, key: keys, value: keys, output: queries, log_sum_exp, output_gradient: queries,
 * mask -> query_gradient: queries, key_gradient: keys, value_gradient: keys */
void jw_attention_input_gradient(const jw_call *call);
size_t jw_attention_forward_workspace(const int32_t *attributes);
size_t jw_attention_input_gradient_workspace(const int32_t *attributes);

/* Pooling: image = [batch, channels, in_height, in_width], and pooled = the same with the output
 * height and width, (in + pads - kernel) / stride + 1 rounded down. */

/* input: image -> output: pooled */
void jw_average_pool2d_forward(const jw_call *call);
void jw_max_pool2d_forward(const jw_call *call);
/* output_gradient: pooled -> input_gradient: image */
void jw_average_pool2d_input_gradient(const jw_call *call);
/* input: image, output_gradient: pooled -> input_gradient: image */
void jw_max_pool2d_input_gradient(const jw_call *call);
size_t jw_max_pool2d_input_gradient_workspace(const int32_t *attributes);
/* input: image -> output: pooled, places: a byte for each element of pooled, in whole int32 words */
void jw_max_pool2d_places_forward(const jw_call *call);
size_t jw_max_pool2d_places_forward_workspace(const int32_t *attributes);
/* places, output_gradient: pooled -> input_gradient: image */
void jw_max_pool2d_places_input_gradient(const jw_call *call);
size_t jw_max_pool2d_places_input_gradient_workspace(const int32_t *attributes);
/* input [batch, channels, plane] -> output [batch, channels] */
void jw_global_average_pool_forward(const jw_call *call);
/* output_gradient [batch, channels] -> input_gradient [batch, channels, plane] */
void jw_global_average_pool_input_gradient(const jw_call *call);

/* Batch norm: data = [batch, channels, plane]; all other operands are [channels]. */

/* input: data, scale, shift -> output: data, mean, variance; scalar epsilon */
void jw_batch_norm_forward(const jw_call *call);
/* input: data, output_gradient: data, scale, mean, variance, scale_gradient, shift_gradient
 * -> input_gradient: data; scalar epsilon */
void jw_batch_norm_input_gradient(const jw_call *call);
/* input: data, output_gradient: data, mean, variance -> scale_gradient, shift_gradient; scalar
 * epsilon */
void jw_batch_norm_parameter_gradient(const jw_call *call);
/* mean, variance, running_mean, running_variance -> next_running_mean, next_running_variance;
 * scalar momentum */
void jw_batch_norm_statistics_update(const jw_call *call);

/* The same with statistics that are not those of the batch. */

/* input: data, scale, shift, mean, variance -> output: data; scalar epsilon */
void jw_batch_norm_frozen_forward(const jw_call *call);
/* output_gradient: data, scale, variance -> input_gradient: data; scalar epsilon */
void jw_batch_norm_frozen_input_gradient(const jw_call *call);

/* Broadcasting: large = [outer, middle, between, inner], small = [middle, inner]. */

/* input: large, addend: small -> output: large */
void jw_broadcast_add_forward(const jw_call *call);
/* output_gradient: large -> addend_gradient: small */
void jw_broadcast_add_addend_gradient(const jw_call *call);
/* input: large, factor: small -> output: large, or the same for gradients */
void jw_broadcast_multiply(const jw_call *call);
/* input: large, shown: small -> output: large, or the same for gradients */
void jw_broadcast_select(const jw_call *call);
/* input: large, output_gradient: large -> factor_gradient: small */
void jw_broadcast_multiply_factor_gradient(const jw_call *call);
/* input: large -> output: small, the sum times the scalar factor */
void jw_reduce_forward(const jw_call *call);
/* output_gradient: small -> input_gradient: large; scalar factor */
void jw_reduce_input_gradient(const jw_call *call);
/* input: large, cosine: small, sine: small -> output: large, or the reverse for gradients */
void jw_rotary_forward(const jw_call *call);
void jw_rotary_input_gradient(const jw_call *call);

/* left [outer, left_inner], right [outer, right_inner]
 * -> output [outer, left_inner + right_inner] */
void jw_concat_forward(const jw_call *call);
/* The reverse, of gradients. */
void jw_concat_input_gradient(const jw_call *call);

/* Convolution: image = [batch, in_channels, in_height, in_width], result = [batch, out_channels,
 * output height, output width], weight [out_channels, in_channels / groups, kernel_height,
 * kernel_width], bias [out_channels] if the attribute `bias` is 1. */

/* input: image, weight, bias -> output: result */
void jw_conv2d_forward(const jw_call *call);
/* output_gradient: result, weight -> input_gradient: image */
void jw_conv2d_input_gradient(const jw_call *call);
/* input: image, output_gradient: result -> weight_gradient, bias_gradient */
void jw_conv2d_parameter_gradient(const jw_call *call);
size_t jw_conv2d_forward_workspace(const int32_t *attributes);
size_t jw_conv2d_input_gradient_workspace(const int32_t *attributes);
size_t jw_conv2d_parameter_gradient_workspace(const int32_t *attributes);

/* A part of it: `channels` output channels from `first` on and `inputs` input channels from
 * `first_input` on. weight, bias and their gradients have these channels alone. What parts before have
 * written is read if there are any, and may be in place: sums over input channels go on if
 * `first_input` is not 0, sums over output channels if `first` is not 0. columns: unfolded image, for
 * these input channels [inputs * kernel_height * kernel_width, batch * output height * output width],
 * in the order of tiles. */

/* input: image, weight, bias, output_before: result -> output: result */
void jw_conv2d_part_forward(const jw_call *call);
/* output_gradient: result, weight, input_gradient_before: image -> input_gradient: image, which
 * must not have more positions than the result; the stride must be 1 */
void jw_conv2d_part_input_gradient(const jw_call *call);
/* output_gradient: result, weight, columns_before: columns -> columns */
void jw_conv2d_part_columns_gradient(const jw_call *call);
/* columns of all output channels, input_gradient_before: image, if `first_input` is not 0 ->
 * input_gradient: image */
void jw_conv2d_part_fold(const jw_call *call);
/* input: image, output_gradient: result -> weight_gradient, bias_gradient */
void jw_conv2d_part_parameter_gradient(const jw_call *call);
size_t jw_conv2d_part_forward_workspace(const int32_t *attributes);
size_t jw_conv2d_part_input_gradient_workspace(const int32_t *attributes);
size_t jw_conv2d_part_columns_gradient_workspace(const int32_t *attributes);
size_t jw_conv2d_part_fold_workspace(const int32_t *attributes);
size_t jw_conv2d_part_parameter_gradient_workspace(const int32_t *attributes);

/* A block of it: a convolution between parts of the image and of the result. If `continued`, it goes
 * on with the sums that the block before has left, which may be in place. */

/* input: image, weight, bias or output_before: result -> output: result */
void jw_conv2d_block_forward(const jw_call *call);
/* output_gradient: result, weight, input_gradient_before: image -> input_gradient: image, which
 * must not have more positions than the result; the stride must be 1 */
void jw_conv2d_block_input_gradient(const jw_call *call);
/* output_gradient: result, weight, columns_before: columns -> columns of all the block's channels */
void jw_conv2d_block_columns_gradient(const jw_call *call);
size_t jw_conv2d_block_forward_workspace(const int32_t *attributes);
size_t jw_conv2d_block_input_gradient_workspace(const int32_t *attributes);
size_t jw_conv2d_block_columns_gradient_workspace(const int32_t *attributes);

/* The same with `dilation_height` and `dilation_width`, the distances of neighbouring taps; they come
 * after conv2d's attributes. */
void jw_dilated_conv2d_forward(const jw_call *call);
void jw_dilated_conv2d_input_gradient(const jw_call *call);
void jw_dilated_conv2d_parameter_gradient(const jw_call *call);
size_t jw_dilated_conv2d_forward_workspace(const int32_t *attributes);
size_t jw_dilated_conv2d_input_gradient_workspace(const int32_t *attributes);
size_t jw_dilated_conv2d_parameter_gradient_workspace(const int32_t *attributes);

/* Transposed convolution: image = [batch, in_channels, in_height, in_width], result = [batch,
 * out_channels, out_height, out_width], weight [in_channels, out_channels / groups, kernel_height,
 * kernel_width], bias [out_channels] if the attribute `bias` is 1. */

/* input: image, weight, bias -> output: result */
void jw_conv_transpose2d_forward(const jw_call *call);
/* output_gradient: result, weight -> input_gradient: image */
void jw_conv_transpose2d_input_gradient(const jw_call *call);
/* input: image, output_gradient: result -> weight_gradient, bias_gradient */
void jw_conv_transpose2d_parameter_gradient(const jw_call *call);
size_t jw_conv_transpose2d_forward_workspace(const int32_t *attributes);
size_t jw_conv_transpose2d_input_gradient_workspace(const int32_t *attributes);
size_t jw_conv_transpose2d_parameter_gradient_workspace(const int32_t *attributes);

/* The operands of conv2d, of some channels of a depthwise convolution */
void jw_depthwise_part_forward(const jw_call *call);
void jw_depthwise_part_input_gradient(const jw_call *call);
void jw_depthwise_part_parameter_gradient(const jw_call *call);
size_t jw_depthwise_part_forward_workspace(const int32_t *attributes);
size_t jw_depthwise_part_input_gradient_workspace(const int32_t *attributes);
size_t jw_depthwise_part_parameter_gradient_workspace(const int32_t *attributes);

/* input [elements] -> output [elements], or the same for gradients; scalars: probability, seed */
void jw_dropout(const jw_call *call);
/* The same for [outer, inner] of a larger tensor; scalars: probability, seed */
void jw_dropout_part(const jw_call *call);
/* input [rows, inner] -> output, or the same for gradients, with one draw a row; scalars:
 * probability, factor, seed */
void jw_dropout_rows(const jw_call *call);

/* integers [elements] -> output [elements] */
void jw_from_integers_forward(const jw_call *call);
/* input [elements] -> indices [elements], from 0 to bound - 1 unless bound is 0 */
void jw_to_indices_forward(const jw_call *call);
/* input [elements] -> output [elements], 1 where the input is the number and 0 elsewhere; scalar
 * number */
void jw_equal_number_forward(const jw_call *call);
/* input [outer, size, inner] -> output [outer, size, inner] */
void jw_cumulative_sum_forward(const jw_call *call);
/* output_gradient [outer, size, inner] -> input_gradient [outer, size, inner] */
void jw_cumulative_sum_input_gradient(const jw_call *call);

/* indices [rows], table [vocabulary, features] -> output [rows, features] */
void jw_embedding_forward(const jw_call *call);
/* indices [rows], output_gradient [rows, features] -> table_gradient [vocabulary, features] */
void jw_embedding_parameter_gradient(const jw_call *call);
void jw_embedding_padded_parameter_gradient(const jw_call *call);

/* A part of it: `channels` rows of the table from `first` on. Rows of the output that parts before
 * have written are read if `first` is not 0, and may be in place. */

/* indices [rows], table [channels, features], output_before -> output [rows, features] */
void jw_embedding_part_forward(const jw_call *call);
void jw_embedding_padded_part_forward(const jw_call *call);
/* indices [rows], output_gradient [rows, features] -> table_gradient [channels, features] */
void jw_embedding_part_parameter_gradient(const jw_call *call);
void jw_embedding_padded_part_parameter_gradient(const jw_call *call);

/* input [elements] -> output [elements], or the same for gradients */
void jw_flatten(const jw_call *call);

/* Group norm: data = [batch, channels, plane]; scale, shift and their gradients are [channels], mean
 * and variance [batch, groups]; scalar epsilon. */

/* input: data, scale, shift -> output: data, mean, variance */
void jw_group_norm_forward(const jw_call *call);
/* input: data, output_gradient: data, scale, mean, variance -> input_gradient: data */
void jw_group_norm_input_gradient(const jw_call *call);
/* input: data, output_gradient: data, mean, variance -> scale_gradient, shift_gradient */
void jw_group_norm_parameter_gradient(const jw_call *call);

/* Layer norm: data = [rows, features]; scale, shift and their gradients are [features], mean and
 * variance [rows]; scalar epsilon. */

/* input: data, scale, shift -> output: data, mean, variance */
void jw_layer_norm_forward(const jw_call *call);
/* input: data, output_gradient: data, scale, mean, variance -> input_gradient: data */
void jw_layer_norm_input_gradient(const jw_call *call);
/* input: data, output_gradient: data, mean, variance -> scale_gradient, shift_gradient */
void jw_layer_norm_parameter_gradient(const jw_call *call);

/* Linear: weight [out_features, in_features], bias [out_features] if the attribute `bias` is 1. */

/* input [rows, in_features], weight, bias -> output [rows, out_features] */
void jw_linear_forward(const jw_call *call);
/* output_gradient [rows, out_features], weight -> input_gradient [rows, in_features] */
void jw_linear_input_gradient(const jw_call *call);
/* input [rows, in_features], output_gradient [rows, out_features] -> weight_gradient,
 * bias_gradient */
void jw_linear_parameter_gradient(const jw_call *call);
size_t jw_linear_forward_workspace(const int32_t *attributes);
size_t jw_linear_input_gradient_workspace(const int32_t *attributes);
size_t jw_linear_parameter_gradient_workspace(const int32_t *attributes);

/* A part of it: `channels` output features from `first` on and `inputs` input features from
 * `first_input` on. weight, bias and their gradients have these features alone. What parts before have
 * written is read if there are any, and may be in place: sums over input features go on if
 * `first_input` is not 0, sums over output features if `first` is not 0. */

/* input [rows, in_features], weight, bias, output_before -> output [rows, out_features] */
void jw_linear_part_forward(const jw_call *call);
/* output_gradient [rows, out_features], weight, input_gradient_before -> input_gradient [rows,
 * in_features] */
void jw_linear_part_input_gradient(const jw_call *call);
/* input [rows, in_features], output_gradient [rows, out_features] -> weight_gradient,
 * bias_gradient */
void jw_linear_part_parameter_gradient(const jw_call *call);
size_t jw_linear_part_forward_workspace(const int32_t *attributes);
size_t jw_linear_part_input_gradient_workspace(const int32_t *attributes);
size_t jw_linear_part_parameter_gradient_workspace(const int32_t *attributes);

/* A block of it: a layer between parts of the input and of the output. If `continued`, it goes on with
 * the sums that the block before has left, which may be in place. */

/* input [rows, in_features], weight, bias or output_before -> output [rows, out_features] */
void jw_linear_block_forward(const jw_call *call);
/* output_gradient [rows, out_features], weight, input_gradient_before -> input_gradient [rows,
 * in_features] */
void jw_linear_block_input_gradient(const jw_call *call);
size_t jw_linear_block_forward_workspace(const int32_t *attributes);
size_t jw_linear_block_input_gradient_workspace(const int32_t *attributes);

/* Products for every batch and head: left [batch, heads, rows, depth], right [batch, heads, depth,
 * columns], output [batch, heads, rows, columns]. A transposed operand has its last two axes
 * exchanged in memory; then, in an interleaved one, the heads stand before the last axis. */

/* left, right -> output */
void jw_matmul_forward(const jw_call *call);
/* output_gradient, right -> left_gradient */
void jw_matmul_left_gradient(const jw_call *call);
/* output_gradient, left -> right_gradient */
void jw_matmul_right_gradient(const jw_call *call);
size_t jw_matmul_forward_workspace(const int32_t *attributes);
size_t jw_matmul_left_gradient_workspace(const int32_t *attributes);
size_t jw_matmul_right_gradient_workspace(const int32_t *attributes);

/* prediction, target [elements] -> loss [1]; scalar share */
void jw_mean_squared_error_forward(const jw_call *call);
/* prediction, target [elements] -> prediction_gradient [elements]; scalar share */
void jw_mean_squared_error_input_gradient(const jw_call *call);

/* left, right [elements] -> output [elements]; or output_gradient and one factor -> the gradient of
 * the other */
void jw_multiply(const jw_call *call);

/* Recurrent layers of G gates (LSTM 4, GRU 3, RNN 1). A sequence is [steps, batch, width], or [batch,
 * steps, width] with the attribute `batch_first`; gates = a sequence of G * hidden, states = a
 * sequence of hidden, state = [batch, hidden], hidden_weight [G * hidden, hidden], hidden_bias
 * [G * hidden]. Operands in brackets exist if the attribute of their name (hidden_bias: `bias`) is
 * 1. */

/* input_gates: gates, hidden_weight, [hidden_bias], [initial_hidden: state] -> output: states, gates,
 * candidate: states */
void jw_gru_forward(const jw_call *call);
/* gates, candidate, output, hidden_weight, output_gradient: states, [initial_hidden]
 * -> input_gates_gradient: gates, candidate_gradient: states, [initial_hidden_gradient] */
void jw_gru_input_gradient(const jw_call *call);
/* output, input_gates_gradient, candidate_gradient, [initial_hidden] -> hidden_weight_gradient,
 * [hidden_bias_gradient] */
void jw_gru_parameter_gradient(const jw_call *call);
size_t jw_gru_forward_workspace(const int32_t *attributes);
size_t jw_gru_input_gradient_workspace(const int32_t *attributes);
/* input_gates: gates, hidden_weight, [hidden_bias], [initial_hidden: state], [initial_cell: state]
 * -> output: states, cells: states, gates, [final_cell: state] */
void jw_lstm_forward(const jw_call *call);
/* gates, cells, hidden_weight, output_gradient: states, [initial_cell], [final_cell_gradient]
 * -> input_gates_gradient: gates, [initial_hidden_gradient], [initial_cell_gradient] */
void jw_lstm_input_gradient(const jw_call *call);
/* output, input_gates_gradient, [initial_hidden] -> hidden_weight_gradient, [hidden_bias_gradient] */
void jw_lstm_parameter_gradient(const jw_call *call);
size_t jw_lstm_forward_workspace(const int32_t *attributes);
size_t jw_lstm_input_gradient_workspace(const int32_t *attributes);
/* input_gates: gates, hidden_weight, [hidden_bias], [initial_hidden: state] -> output: states */
void jw_rnn_relu_forward(const jw_call *call);
void jw_rnn_tanh_forward(const jw_call *call);
/* output, hidden_weight, output_gradient: states -> input_gates_gradient: gates,
 * [initial_hidden_gradient] */
void jw_rnn_relu_input_gradient(const jw_call *call);
void jw_rnn_tanh_input_gradient(const jw_call *call);
/* output, input_gates_gradient, [initial_hidden] -> hidden_weight_gradient, [hidden_bias_gradient] */
void jw_rnn_parameter_gradient(const jw_call *call);
size_t jw_rnn_forward_workspace(const int32_t *attributes);
size_t jw_rnn_input_gradient_workspace(const int32_t *attributes);
/* Of all recurrent layers. */
size_t jw_recurrent_parameter_gradient_workspace(const int32_t *attributes);

/* RMS norm: data = [rows, features]; scale and its gradient are [features], mean_square [rows]; scalar
 * epsilon. */

/* input: data, scale -> output: data, mean_square */
void jw_rms_norm_forward(const jw_call *call);
/* input: data, output_gradient: data, scale, mean_square -> input_gradient: data */
void jw_rms_norm_input_gradient(const jw_call *call);
/* input: data, output_gradient: data, mean_square -> scale_gradient */
void jw_rms_norm_parameter_gradient(const jw_call *call);

/* input [source] -> output [size0, ..., size5]: element (i0, ..., i5) is that at offset + i0 stride0
 * + ... + i5 stride5 */
void jw_strided_copy_forward(const jw_call *call);
/* output_gradient [size0, ..., size5] -> input_gradient [source]; pad is the reverse of the two */
void jw_strided_copy_input_gradient(const jw_call *call);

/* parameter, gradient [elements] -> next_parameter [elements]; scalars: learning_rate,
 * weight_decay */
void jw_sgd_update(const jw_call *call);
/* parameter, gradient, velocity [elements] -> next_parameter, next_velocity [elements]; scalars:
 * learning_rate, momentum, weight_decay */
void jw_sgd_momentum_update(const jw_call *call);
void jw_sgd_nesterov_update(const jw_call *call);
/* parameter, gradient, first_moment, second_moment [elements], corrections [2] ->
 * next_parameter, next_first_moment, next_second_moment, next_corrections; scalars: learning_rate,
 * first_rate, second_rate, epsilon, weight_decay (AdamW's), gradient_decay (Adam's) */
void jw_adam_update(const jw_call *call);

/* Activations: input [elements] -> output [elements]; scalars of clamp: lowest, highest; of
 * leaky_relu: slope */
void jw_clamp_forward(const jw_call *call);
void jw_gelu_forward(const jw_call *call);
void jw_gelu_tanh_forward(const jw_call *call);
void jw_hard_sigmoid_forward(const jw_call *call);
void jw_hard_swish_forward(const jw_call *call);
void jw_leaky_relu_forward(const jw_call *call);
void jw_relu_forward(const jw_call *call);
void jw_sigmoid_forward(const jw_call *call);
void jw_silu_forward(const jw_call *call);
void jw_tanh_forward(const jw_call *call);
/* input, output_gradient [elements] -> input_gradient [elements] */
void jw_gelu_input_gradient(const jw_call *call);
void jw_gelu_tanh_input_gradient(const jw_call *call);
void jw_hard_swish_input_gradient(const jw_call *call);
void jw_silu_input_gradient(const jw_call *call);
/* output, output_gradient [elements] -> input_gradient [elements]; scalars as above */
void jw_clamp_input_gradient(const jw_call *call);
void jw_hard_sigmoid_input_gradient(const jw_call *call);
void jw_leaky_relu_input_gradient(const jw_call *call);
void jw_relu_input_gradient(const jw_call *call);
void jw_sigmoid_input_gradient(const jw_call *call);
void jw_tanh_input_gradient(const jw_call *call);
/* input [elements] -> output [elements]: zeros in place of negative numbers; every second word of the
 * first half of each 32 words, with zeros between them (packing.h) */
void jw_packing_page_out(const jw_call *call);
void jw_packing_page_in(const jw_call *call);

/* input [elements] -> output [elements], bits [elements / 32, rounded up]: int32 words of a bit for
 * each element; scalars as above */
void jw_clamp_bits_forward(const jw_call *call);
void jw_leaky_relu_bits_forward(const jw_call *call);
void jw_relu_bits_forward(const jw_call *call);
/* bits, output_gradient [elements] -> input_gradient [elements]; scalar of leaky_relu_bits: slope */
void jw_bits_input_gradient(const jw_call *call); /* of clamp_bits and relu_bits */
void jw_leaky_relu_bits_input_gradient(const jw_call *call);

/* Functions: input [elements] -> output [elements]; scalar of add_number: addend; of
 * multiply_number: factor; of elu: alpha */
void jw_absolute_forward(const jw_call *call);
void jw_add_number_forward(const jw_call *call);
void jw_elu_forward(const jw_call *call);
void jw_exponential_forward(const jw_call *call);
void jw_logarithm_forward(const jw_call *call);
void jw_reciprocal_forward(const jw_call *call);
void jw_reciprocal_root_forward(const jw_call *call);
void jw_softplus_forward(const jw_call *call);
void jw_square_forward(const jw_call *call);
void jw_square_root_forward(const jw_call *call);
/* input, output_gradient [elements] -> input_gradient [elements] */
void jw_absolute_input_gradient(const jw_call *call);
void jw_logarithm_input_gradient(const jw_call *call);
void jw_softplus_input_gradient(const jw_call *call);
void jw_square_input_gradient(const jw_call *call);
/* output, output_gradient [elements] -> input_gradient [elements]; scalar as above */
void jw_elu_input_gradient(const jw_call *call);
void jw_exponential_input_gradient(const jw_call *call);
void jw_reciprocal_input_gradient(const jw_call *call);
void jw_reciprocal_root_input_gradient(const jw_call *call);
void jw_square_root_input_gradient(const jw_call *call);
/* input [elements] -> output [elements], or the same for gradients; scalar factor */
void jw_multiply_number(const jw_call *call);

/* logits, target [elements] -> loss [1]; scalar share */
void jw_binary_cross_entropy_forward(const jw_call *call);
/* logits, target [elements] -> logits_gradient [elements]; scalar share */
void jw_binary_cross_entropy_input_gradient(const jw_call *call);

/* input [rows, columns] -> output [rows, columns] */
void jw_softmax_forward(const jw_call *call);
/* output, output_gradient [rows, columns] -> input_gradient [rows, columns] */
void jw_softmax_input_gradient(const jw_call *call);
/* logits [rows, classes], labels [rows] -> loss [1]; scalar share */
void jw_softmax_cross_entropy_forward(const jw_call *call);
/* logits [rows, classes], labels [rows] -> logits_gradient [rows, classes]; scalar share */
void jw_softmax_cross_entropy_input_gradient(const jw_call *call);
/* logits [rows, classes], labels [rows], class_weights [classes] -> loss [1]; scalars: share,
 * smoothing, ignored */
void jw_weighted_cross_entropy_forward(const jw_call *call);
/* logits [rows, classes], labels [rows], class_weights [classes] -> logits_gradient [rows, classes];
 * scalars: share, smoothing, ignored */
void jw_weighted_cross_entropy_input_gradient(const jw_call *call);

/* Cross entropy over parts of the classes: `channels` classes from `first` on, of which logits and
 * their gradient have the columns. What the parts before have left is read if `first` is not 0, and
 * may be in place. sums [rows, JW_LANES]: class c is in sum c mod JW_LANES. */

/* logits [rows, channels], labels [rows], maximum_before [rows], label_logit_before [rows] -> maximum
 * [rows], label_logit [rows] */
void jw_cross_entropy_block_maximum(const jw_call *call);
/* logits [rows, channels], maximum [rows], sums_before -> sums */
void jw_cross_entropy_block_sum(const jw_call *call);
/* maximum [rows], label_logit [rows], sums -> loss [1]; scalar share */
void jw_cross_entropy_block_loss(const jw_call *call);
/* logits [rows, channels], labels [rows], maximum [rows], sums -> logits_gradient [rows, channels];
 * scalar share */
void jw_cross_entropy_block_input_gradient(const jw_call *call);

/* The same with weights of classes and labels that are ignored, from the state of the same chains;
 * scalars: share, ignored. */

/* maximum [rows], label_logit [rows], sums, labels [rows], class_weights [classes] -> loss [1] */
void jw_weighted_cross_entropy_block_loss(const jw_call *call);
/* logits [rows, channels], labels [rows], maximum [rows], sums, class_weights [classes] ->
 * logits_gradient [rows, channels] */
void jw_weighted_cross_entropy_block_input_gradient(const jw_call *call);

/* Layer and RMS norm over parts of the features: `channels` features from `first` on, of which data =
 * [rows, channels] has the columns, and scale and shift = [channels] the elements. Sums of the parts
 * before are read if `first` is not 0, and may be in place. Sums are [rows, JW_LANES]: feature f is in
 * sum f mod JW_LANES. mean, variance and mean_square are [rows]; scalar epsilon of outputs and input
 * gradients. */

/* input data, sums_before -> sums */
void jw_layer_norm_block_sum(const jw_call *call);
/* input data, sums, squares_before -> squares */
void jw_layer_norm_block_squares(const jw_call *call);
/* sums, squares -> mean, variance */
void jw_layer_norm_block_statistics(const jw_call *call);
/* input data, scale, shift, mean, variance -> output data */
void jw_layer_norm_block_forward(const jw_call *call);
/* input, output_gradient data, scale, mean, variance, gradient_sums_before, gradient_products_before
 * -> gradient_sums, gradient_products */
void jw_layer_norm_block_gradient_sums(const jw_call *call);
/* input, output_gradient data, scale, mean, variance, gradient_sums, gradient_products ->
 * input_gradient data */
void jw_layer_norm_block_input_gradient(const jw_call *call);
/* input data, squares_before -> squares */
void jw_rms_norm_block_squares(const jw_call *call);
/* squares -> mean_square */
void jw_rms_norm_block_statistics(const jw_call *call);
/* input data, scale, mean_square -> output data */
void jw_rms_norm_block_forward(const jw_call *call);
/* input, output_gradient data, scale, mean_square, gradient_products_before -> gradient_products */
void jw_rms_norm_block_gradient_sums(const jw_call *call);
/* input, output_gradient data, scale, mean_square, gradient_products -> input_gradient data */
void jw_rms_norm_block_input_gradient(const jw_call *call);

/* input [batch, channels, in_height, in_width] -> output [batch, channels, out_height, out_width];
 * scalars: the distance of two outputs in rows and in columns of the input */
void jw_upsample_bilinear2d_forward(const jw_call *call);
/* The reverse, of gradients, which are summed. */
void jw_upsample_bilinear2d_input_gradient(const jw_call *call);
size_t jw_upsample_bilinear2d_workspace(const int32_t *attributes);

/* input [batch, channels, in_height, in_width]
 * -> output [batch, channels, in_height * factor_height, in_width * factor_width] */
void jw_upsample_nearest2d_forward(const jw_call *call);
/* The reverse, of gradients, which are summed. */
void jw_upsample_nearest2d_input_gradient(const jw_call *call);

#endif
