/* Depthwise convolution: each output channel from one input channel, without a workspace but for a
 * row of partial sums per tap in the weight gradient. */
#include "conv2d.h"

/* The input row that tap ky of output row y reads, or NULL outside. */
static const float *source_row(const jw_conv *conv, const float *plane, jw_index y, jw_index ky)
{
    const jw_index row = jw_source(&conv->y, y, ky);
    return row < 0 || row >= conv->y.in ? NULL : plane + row * conv->x.in;
}

void jw_depthwise_forward(const jw_conv *conv, const float *input, const float *weight,
                          const float *bias, float *restrict output)
{
    for (jw_index n = 0; n < conv->batch; n++)
        for (jw_index c = 0; c < conv->out_channels; c++) {
            const float *plane =
                input + (n * conv->in_channels + c / conv->group_out) * conv->in_plane;
            for (jw_index y = 0; y < conv->y.out; y++, output += conv->x.out) {
                jw_fill(output, bias ? bias[c] : 0.0f, conv->x.out);
                for (jw_index ky = 0; ky < conv->y.kernel; ky++) {
                    const float *row = source_row(conv, plane, y, ky);
                    if (!row)
                        continue;
                    for (jw_index kx = 0; kx < conv->x.kernel; kx++) {
                        const float w = weight[c * conv->taps + ky * conv->x.kernel + kx];
                        const float *source = row + jw_source(&conv->x, 0, kx);
                        const jw_index first = jw_first(&conv->x, kx);
                        const jw_index last = jw_last(&conv->x, kx);
                        if (conv->x.stride == 1)
                            for (jw_index x = first; x < last; x++)
                                output[x] = JW_FMA(w, source[x], output[x]);
                        else
                            for (jw_index x = first; x < last; x++)
                                output[x] = JW_FMA(w, source[x * conv->x.stride], output[x]);
                    }
                }
            }
        }
}

void jw_depthwise_input_gradient(const jw_conv *conv, const float *restrict output_gradient,
                                 const float *weight, float *restrict input_gradient)
{
    jw_fill(input_gradient, 0.0f, conv->batch * conv->in_channels * conv->in_plane);
    for (jw_index n = 0; n < conv->batch; n++)
        for (jw_index c = 0; c < conv->out_channels; c++) {
            float *plane =
                input_gradient + (n * conv->in_channels + c / conv->group_out) * conv->in_plane;
            for (jw_index y = 0; y < conv->y.out; y++, output_gradient += conv->x.out)
                for (jw_index ky = 0; ky < conv->y.kernel; ky++) {
                    const jw_index row = jw_source(&conv->y, y, ky);
                    if (row < 0 || row >= conv->y.in)
                        continue;
                    for (jw_index kx = 0; kx < conv->x.kernel; kx++) {
                        const float w = weight[c * conv->taps + ky * conv->x.kernel + kx];
                        float *target = plane + row * conv->x.in + jw_source(&conv->x, 0, kx);
                        const jw_index first = jw_first(&conv->x, kx);
                        const jw_index last = jw_last(&conv->x, kx);
                        if (conv->x.stride == 1)
                            for (jw_index x = first; x < last; x++)
                                target[x] = JW_FMA(w, output_gradient[x], target[x]);
                        else
                            for (jw_index x = first; x < last; x++)
                                target[x * conv->x.stride] =
                                    JW_FMA(w, output_gradient[x], target[x * conv->x.stride]);
                    }
                }
        }
}

jw_index jw_depthwise_weight_gradient_workspace(const jw_conv *conv)
{
    return jw_padded(conv->taps * conv->x.out);
}

/* For each tap, products are summed over rows and images position by position, which vectorises
 * also where rows are short; the positions are added up at the end. */
void jw_depthwise_weight_gradient(const jw_conv *conv, const float *input,
                                  const float *output_gradient, float *weight_gradient,
                                  float *restrict workspace)
{
    for (jw_index c = 0; c < conv->out_channels; c++) {
        jw_fill(workspace, 0.0f, conv->taps * conv->x.out);
        for (jw_index n = 0; n < conv->batch; n++) {
            const float *plane =
                input + (n * conv->in_channels + c / conv->group_out) * conv->in_plane;
            const float *restrict gradient =
                output_gradient + (n * conv->out_channels + c) * conv->out_plane;
            for (jw_index y = 0; y < conv->y.out; y++, gradient += conv->x.out)
                for (jw_index ky = 0; ky < conv->y.kernel; ky++) {
                    const float *row = source_row(conv, plane, y, ky);
                    if (!row)
                        continue;
                    for (jw_index kx = 0; kx < conv->x.kernel; kx++) {
                        float *sums = workspace + (ky * conv->x.kernel + kx) * conv->x.out;
                        const float *source = row + jw_source(&conv->x, 0, kx);
                        const jw_index first = jw_first(&conv->x, kx);
                        const jw_index last = jw_last(&conv->x, kx);
                        if (conv->x.stride == 1)
                            for (jw_index x = first; x < last; x++)
                                sums[x] = JW_FMA(gradient[x], source[x], sums[x]);
                        else
                            for (jw_index x = first; x < last; x++)
                                sums[x] =
                                    JW_FMA(gradient[x], source[x * conv->x.stride], sums[x]);
                    }
                }
        }
        for (jw_index k = 0; k < conv->taps; k++)
            weight_gradient[c * conv->taps + k] = jw_sum(workspace + k * conv->x.out, conv->x.out);
    }
}
