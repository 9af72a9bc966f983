/* Depthwise convolution: each output channel is computed from one input channel.
 *
 * Rows are often shorter than a vector. A band of rows is therefore copied with its padding between
 * the rows, and treated as one long row, of which a tap of the kernel reads a shifted copy. Sums at
 * positions between two rows are meaningless and not copied to the output. */
#include "conv2d.h"

/* Approximate floats of a band. */
#if JW_SMALL_MEMORY
#define BAND_FLOATS 512
#else
#define BAND_FLOATS 4096
#endif

/* Extra floats after a band, which loops without a remainder may read. */
#define SLACK JW_LANES

/* A band of zeros, except for a plane's elements [y, x], which are at [y * step_y + shift_y,
 * x * step_x + shift_x]; elements that would be outside are left out. */
typedef struct {
    jw_index rows, width;
    jw_index step_y, step_x, shift_y, shift_x;
} band;

static jw_index band_floats(jw_index rows, jw_index width) {
    return jw_padded(rows * width + SLACK);
}

static void lay_out(const band *b, const float *restrict plane, jw_index plane_rows,
                    jw_index plane_width, float *restrict target) {
    const jw_index top = jw_ceil_div(jw_max(-b->shift_y, 0), b->step_y);
    const jw_index bottom =
        jw_min(jw_ceil_div(jw_max(b->rows - b->shift_y, 0), b->step_y), plane_rows);
    const jw_index left = jw_ceil_div(jw_max(-b->shift_x, 0), b->step_x);
    const jw_index right =
        jw_min(jw_ceil_div(jw_max(b->width - b->shift_x, 0), b->step_x), plane_width);

    jw_fill(target, 0.0f, band_floats(b->rows, b->width));
    for (jw_index y = top; y < bottom; y++) {
        const float *source = plane + y * plane_width;
        float *row = target + (y * b->step_y + b->shift_y) * b->width;
        if (b->step_x == 1) {
            for (jw_index x = left; x < right; x++) {
                row[x + b->shift_x] = source[x];
            }
        } else {
            for (jw_index x = left; x < right; x++) {
                row[x * b->step_x + b->shift_x] = source[x];
            }
        }
    }
}

/* Distance in a band of rows of `width` from the first tap to tap `tap`. */
static jw_index tap_shift(const jw_conv *conv, jw_index width, jw_index tap) {
    return tap / conv->x.kernel * conv->y.dilation * width +
           tap % conv->x.kernel * conv->x.dilation;
}

/* sums[i] = sum over taps of weight[tap] * seen[i + shift of the tap], for all i below `count`
 * rounded up to a multiple of 16. */
static void correlate(float *restrict sums, jw_index count, const float *restrict seen,
                      jw_index width, const float *restrict weight, const jw_conv *conv) {
    const jw_index padded_count = jw_padded(count);
    if (conv->y.kernel == 3 && conv->x.kernel == 3 && conv->x.dilation == 1) {
        const jw_index down = conv->y.dilation * width;
        float w[9];
        memcpy(w, weight, sizeof w);
        for (jw_index i = 0; i < padded_count; i++) {
            const float *first = seen + i, *second = first + down, *third = second + down;
            float sum = w[0] * first[0];
            sum = JW_FMA(w[1], first[1], sum);
            sum = JW_FMA(w[2], first[2], sum);
            sum = JW_FMA(w[3], second[0], sum);
            sum = JW_FMA(w[4], second[1], sum);
            sum = JW_FMA(w[5], second[2], sum);
            sum = JW_FMA(w[6], third[0], sum);
            sum = JW_FMA(w[7], third[1], sum);
            sums[i] = JW_FMA(w[8], third[2], sum);
        }
        return;
    }
    jw_fill(sums, 0.0f, padded_count);
    for (jw_index tap = 0; tap < conv->taps; tap++) {
        const float w = weight[tap];
        const float *shifted = seen + tap_shift(conv, width, tap);
        for (jw_index i = 0; i < padded_count; i++) {
            sums[i] = JW_FMA(w, shifted[i], sums[i]);
        }
    }
}

/* --- forward: the band holds the padded input ------------------------------------------------- */

/* Width of the part of the padded input that windows read. */
static jw_index padded_width(const jw_conv *conv) {
    return (conv->x.out - 1) * conv->x.stride + jw_extent(&conv->x);
}

/* Output rows computed from one band. */
static jw_index output_rows(const jw_conv *conv) {
    return jw_min(jw_max(BAND_FLOATS / (conv->y.stride * padded_width(conv)), 1), conv->y.out);
}

static band padded_input(const jw_conv *conv, jw_index first_row, jw_index rows) {
    const band b = {.rows = (rows - 1) * conv->y.stride + jw_extent(&conv->y),
                    .width = padded_width(conv),
                    .step_y = 1,
                    .step_x = 1,
                    .shift_y = conv->y.pad - first_row * conv->y.stride,
                    .shift_x = conv->x.pad};
    return b;
}

static jw_index padded_input_floats(const jw_conv *conv) {
    const band b = padded_input(conv, 0, output_rows(conv));
    return band_floats(b.rows, b.width);
}

jw_index jw_depthwise_forward_workspace(const jw_conv *conv) {
    return padded_input_floats(conv) + band_floats(output_rows(conv), padded_width(conv));
}

void jw_depthwise_forward(const jw_conv *conv, const float *input, const float *weight,
                          const float *bias, float *restrict output, float *workspace) {
    const jw_index width = padded_width(conv), stride = conv->x.stride;
    const jw_index row_span = (conv->x.out - 1) * stride + 1; /* sums of a row that are used */
    float *padded = workspace, *restrict sums = workspace + padded_input_floats(conv);

    for (jw_index p = 0; p < conv->batch * conv->in_channels; p++) {
        for (jw_index first = 0; first < conv->y.out; first += output_rows(conv)) {
            const jw_index rows = jw_min(output_rows(conv), conv->y.out - first);
            const band b = padded_input(conv, first, rows);
            lay_out(&b, input + p * conv->in_plane, conv->y.in, conv->x.in, padded);
            for (jw_index m = 0; m < conv->group_out; m++) {
                const jw_index c = p % conv->in_channels * conv->group_out + m;
                const float *filter = weight + c * conv->taps;
                const float offset = bias ? bias[c] : 0.0f;
                float *target =
                    output + (p * conv->group_out + m) * conv->out_plane + first * conv->x.out;
                if (conv->y.stride == 1) {
                    correlate(sums, (rows - 1) * width + row_span, padded, width, filter, conv);
                } else {
                    for (jw_index y = 0; y < rows; y++) {
                        correlate(sums + y * width, row_span, padded + y * conv->y.stride * width,
                                  width, filter, conv);
                    }
                }
                for (jw_index y = 0; y < rows; y++) {
                    for (jw_index x = 0; x < conv->x.out; x++) {
                        target[y * conv->x.out + x] = sums[y * width + x * stride] + offset;
                    }
                }
            }
        }
    }
}

/* --- input gradient: the band holds the output gradient, spread by the stride ----------------- */

static jw_index spread_width(const jw_conv *conv) {
    return conv->x.in + jw_extent(&conv->x) - 1;
}

static jw_index input_rows(const jw_conv *conv) {
    return jw_min(jw_max(BAND_FLOATS / spread_width(conv), 1), conv->y.in);
}

static band spread_gradient(const jw_conv *conv, jw_index first_row, jw_index rows) {
    const band b = {.rows = rows + jw_extent(&conv->y) - 1,
                    .width = spread_width(conv),
                    .step_y = conv->y.stride,
                    .step_x = conv->x.stride,
                    .shift_y = jw_extent(&conv->y) - 1 - conv->y.pad - first_row,
                    .shift_x = jw_extent(&conv->x) - 1 - conv->x.pad};
    return b;
}

static jw_index spread_gradient_floats(const jw_conv *conv) {
    const band b = spread_gradient(conv, 0, input_rows(conv));
    return band_floats(b.rows, b.width);
}

jw_index jw_depthwise_input_gradient_workspace(const jw_conv *conv) {
    return spread_gradient_floats(conv) + band_floats(input_rows(conv), spread_width(conv)) +
           jw_padded(conv->taps);
}

void jw_depthwise_input_gradient(const jw_conv *conv, const float *output_gradient,
                                 const float *weight, float *restrict input_gradient,
                                 float *workspace) {
    float *spread = workspace, *restrict sums = spread + spread_gradient_floats(conv);
    float *reversed = sums + band_floats(input_rows(conv), spread_width(conv));

    for (jw_index p = 0; p < conv->batch * conv->in_channels; p++) {
        for (jw_index first = 0; first < conv->y.in; first += input_rows(conv)) {
            const jw_index rows = jw_min(input_rows(conv), conv->y.in - first);
            const band b = spread_gradient(conv, first, rows);
            float *target = input_gradient + p * conv->in_plane + first * conv->x.in;
            for (jw_index m = 0; m < conv->group_out; m++) {
                const jw_index c = p % conv->in_channels * conv->group_out + m;
                for (jw_index k = 0; k < conv->taps; k++) {
                    reversed[k] = weight[(c + 1) * conv->taps - 1 - k];
                }
                lay_out(&b, output_gradient + (p * conv->group_out + m) * conv->out_plane,
                        conv->y.out, conv->x.out, spread);
                correlate(sums, (rows - 1) * b.width + conv->x.in, spread, b.width, reversed, conv);
                for (jw_index y = 0; y < rows; y++) {
                    for (jw_index x = 0; x < conv->x.in; x++) {
                        const float before = m == 0 ? 0.0f : target[y * conv->x.in + x];
                        target[y * conv->x.in + x] = before + sums[y * b.width + x];
                    }
                }
            }
        }
    }
}

/* --- weight gradient: products of the padded input and the spread output gradient ------------- */

static band spread_alike(const jw_conv *conv, jw_index first_row, jw_index rows) {
    const band b = {.rows = (rows - 1) * conv->y.stride + 1,
                    .width = padded_width(conv),
                    .step_y = conv->y.stride,
                    .step_x = conv->x.stride,
                    .shift_y = -first_row * conv->y.stride,
                    .shift_x = 0};
    return b;
}

static jw_index spread_alike_floats(const jw_conv *conv) {
    const band b = spread_alike(conv, 0, output_rows(conv));
    return band_floats(b.rows, b.width);
}

jw_index jw_depthwise_weight_gradient_workspace(const jw_conv *conv) {
    return padded_input_floats(conv) + spread_alike_floats(conv) + conv->taps * JW_LANES;
}

void jw_depthwise_weight_gradient(const jw_conv *conv, const float *input,
                                  const float *output_gradient, float *weight_gradient,
                                  float *workspace) {
    float *padded = workspace, *spread = padded + padded_input_floats(conv);
    float *lanes = spread + spread_alike_floats(conv);

    for (jw_index c = 0; c < conv->out_channels; c++) {
        jw_fill(lanes, 0.0f, conv->taps * JW_LANES);
        for (jw_index n = 0; n < conv->batch; n++) {
            for (jw_index first = 0; first < conv->y.out; first += output_rows(conv)) {
                const jw_index rows = jw_min(output_rows(conv), conv->y.out - first);
                const band seen = padded_input(conv, first, rows);
                const band gradient = spread_alike(conv, first, rows);
                const jw_index count =
                    jw_ceil_div(gradient.rows * gradient.width - jw_extent(&conv->x) + 1,
                                JW_LANES) *
                    JW_LANES;
                lay_out(&seen,
                        input + (n * conv->in_channels + c / conv->group_out) * conv->in_plane,
                        conv->y.in, conv->x.in, padded);
                lay_out(&gradient, output_gradient + (n * conv->out_channels + c) * conv->out_plane,
                        conv->y.out, conv->x.out, spread);
                for (jw_index k = 0; k < conv->taps; k++) {
                    const float *shifted = padded + tap_shift(conv, seen.width, k);
                    JW_ADD_PRODUCTS(lanes + k * JW_LANES, count, shifted[i], spread[i]);
                }
            }
        }
        for (jw_index k = 0; k < conv->taps; k++) {
            weight_gradient[c * conv->taps + k] = jw_fold_lanes(lanes + k * JW_LANES);
        }
    }
}
