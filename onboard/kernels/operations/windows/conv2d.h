/* Shapes and helpers of convolutions, shared by the general and the depthwise path. */
#ifndef JW_CONV2D_H
#define JW_CONV2D_H

#include "internal.h"

/* A part of a convolution has fewer channels in its one group than its images have. */
typedef struct {
    jw_index batch, in_channels, out_channels, groups;
    jw_axis y, x;
    int has_bias;
    jw_index group_in, group_out; /* channels of one group */
    jw_index taps;                /* kernel positions */
    jw_index filter;              /* weights of an output channel */
    jw_index in_plane, out_plane;
    int is_part; /* takes less workspace */
} jw_conv;

/* Convolution with the attributes of conv2d; `dilation`: of rows and of columns. */
static inline jw_conv jw_dilated_conv(const int32_t *a, const int32_t dilation[2]) {
    jw_conv conv;
    conv.batch = a[0];
    conv.in_channels = a[1];
    conv.out_channels = a[4];
    conv.y = jw_axis_of(a[2], a[5], a[7], a[9], a[10], dilation[0]);
    conv.x = jw_axis_of(a[3], a[6], a[8], a[11], a[12], dilation[1]);
    conv.groups = a[13];
    conv.has_bias = a[14] != 0;
    conv.group_in = conv.in_channels / conv.groups;
    conv.group_out = conv.out_channels / conv.groups;
    conv.taps = conv.y.kernel * conv.x.kernel;
    conv.filter = conv.group_in * conv.taps;
    conv.in_plane = conv.y.in * conv.x.in;
    conv.out_plane = conv.y.out * conv.x.out;
    conv.is_part = 0;
    return conv;
}

static inline jw_conv jw_conv_of(const int32_t *a) {
    static const int32_t none[2] = {1, 1};
    return jw_dilated_conv(a, none);
}

/* One input channel per group: without a sum over channels, a matrix product is of no use. */
static inline int jw_is_depthwise(const jw_conv *conv) {
    return conv->groups > 1 && conv->group_in == 1;
}

/* A tile: some channels of one group, and either some output rows of one image or the whole planes
 * of several images. */
typedef struct {
    jw_index group, image, images, row, rows;
    jw_index channel, channels; /* input channels, counted over all groups */
    jw_index depth, columns;    /* size of the unfolded tile */
} jw_tile;

/* What is computed; it determines the tiles and the workspace. */
typedef enum {
    JW_CONV_FORWARD,
    JW_CONV_INPUT_GRADIENT,
    JW_CONV_PARAMETER_GRADIENT,
    JW_CONV_COLUMNS, /* the unfolded input gradient, with all tiles in memory */
    JW_CONV_FOLD,    /* the input gradient from these columns */
    JW_CONV_GATHER   /* the input gradient without columns */
} jw_conv_role;

/* Bytes of workspace. */
size_t jw_conv_workspace(const jw_conv *conv, jw_conv_role role);

/* Compute what concerns the groups' channels, of which an operand in memory may have more. `bias`
 * may be NULL. With `continues`, the sums over input channels go on from what is in memory. */
void jw_conv_forward(const jw_conv *conv, const float *input, const float *weight,
                     const float *bias, int continues, float *output, float *workspace);
void jw_conv_parameter_gradient(const jw_conv *conv, const jw_call *call);

/* The input gradient, in steps: gathered from the output's if the stride is 1 and the image has not
 * more positions than the result; columns and fold otherwise.
 * With `continues`, the sums over output channels go on from what is in memory. With all of them, the
 * bits are those of conv2d.input_gradient. */
int jw_gathers(const jw_conv *conv);
void jw_conv_gather(const jw_conv *conv, const float *output_gradient, const float *weight,
                    int continues, float *input_gradient, float *workspace);
void jw_conv_columns(const jw_conv *conv, const float *output_gradient, const float *weight,
                     int continues, float *columns, float *workspace);
void jw_conv_fold(const jw_conv *conv, const float *columns, float *input_gradient,
                  float *workspace);

/* The part of a plane that a tile reads, with the padding around it. */
typedef struct {
    jw_index height, width;
    jw_index top, bottom, left, right; /* of what is inside the plane */
    jw_index shift; /* from an index in the frame's first row to one in the plane */
} jw_frame;

jw_frame jw_frame_of(const jw_conv *conv, jw_index row, jw_index rows);

/* Index of the input plane of a channel and an image of the tile. */
jw_index jw_input_plane(const jw_conv *conv, const jw_tile *tile, jw_index channel, jw_index image);

/* Floats of the room for frames of tiles of at most so many output rows; 0 if frames are of no use. */
jw_index jw_frame_floats(const jw_conv *conv, jw_index rows);

/* columns[channel, tap, image, row, x] = the input element that this tap reads for this output
 * position; 0 outside the input. `framed`: room for a frame, or NULL. */
void jw_unfold(const jw_conv *conv, const jw_tile *tile, const float *input, float *columns,
               float *framed);

/* The transpose of jw_unfold: adds each element of `columns` to its input element. Overwrites parts
 * of `columns`. */
void jw_fold(const jw_conv *conv, const jw_tile *tile, float *columns, float *input_gradient,
             float *framed);

/* Whether this build computes the weight gradient of any tiles without unfolding them, whether that
 * of tiles of so many positions, and the floats of workspace that this takes. */
#if JW_SMALL_MEMORY || defined(JW_CBLAS)
#define JW_CORRELATES 0
#else
#define JW_CORRELATES 1
#endif
int jw_correlates(const jw_conv *conv, jw_index positions);
jw_index jw_correlation_floats(const jw_conv *conv, jw_index images, jw_index rows);

/* weight_gradient[channel, input channel, tap] = sum over a tile's positions of output_gradient[channel,
 * position] times the input that the tap reads, or that sum added to it. From one output channel to
 * the next are `filter` floats. */
void jw_correlate(const jw_conv *conv, const jw_tile *tile, const float *input, jw_index channels,
                  jw_matrix output_gradient, int adds, float *weight_gradient, float *workspace);

/* stage[channel, image, position] = output planes of a tile's images, side by side, for `channels`
 * output channels of its group, starting with `channel`. */
void jw_gather(const jw_conv *conv, const jw_tile *tile, jw_index channel, jw_index channels,
               const float *output, float *stage);

/* The reverse of jw_gather: copies `stage` to `output`. */
void jw_scatter(const jw_conv *conv, const jw_tile *tile, jw_index channel, jw_index channels,
                const float *stage, float *output);

/* bias_gradient[channel] = sum of the channel's planes in all images; from one image to the next are
 * `image` floats. */
void jw_sum_over_positions(jw_index batch, jw_index image, jw_index channels, jw_index plane,
                           const float *output_gradient, float *bias_gradient);

/* Depthwise convolution; the workspace queries return floats. */
void jw_depthwise_forward(const jw_conv *conv, const float *input, const float *weight,
                          const float *bias, float *output, float *workspace);
void jw_depthwise_input_gradient(const jw_conv *conv, const float *output_gradient,
                                 const float *weight, float *input_gradient, float *workspace);
void jw_depthwise_weight_gradient(const jw_conv *conv, const float *input,
                                  const float *output_gradient, float *weight_gradient,
                                  float *workspace);
jw_index jw_depthwise_forward_workspace(const jw_conv *conv);
jw_index jw_depthwise_input_gradient_workspace(const jw_conv *conv);
jw_index jw_depthwise_weight_gradient_workspace(const jw_conv *conv);

#endif
