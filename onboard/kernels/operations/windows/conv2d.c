/* Convolution as matrix products over tiles.
 *
 * The unfolded input ("columns": one row per input channel and tap, one column per output position)
 * is never whole in memory: it is made and used tile by tile. A tile covers some channels of one
 * group and either whole output rows of one image or the whole planes of several images. In the
 * latter case the output side of the product is staged, since its images are not adjacent in
 * memory. */
#include "conv2d.h"
#include "kernels.h"

/* Limits of a tile's rows (channels times taps) and columns. */
#if JW_SMALL_MEMORY
#define TILE_DEPTH 72 /* 8 channels of 3 x 3 windows */
#define TILE_COLUMNS 32
#define PART_FLOATS (TILE_DEPTH * TILE_COLUMNS)
#else
#define TILE_DEPTH 256
#define TILE_COLUMNS 256
#define PART_FLOATS 16384
#endif
#define TILE_FLOATS (TILE_DEPTH * TILE_COLUMNS)

/* Small convolutions: floats of the operands for each float of a tile, and columns of a tile. */
#define TENSORS_PER_TILE 8
#define LEAST_COLUMNS 128
/* Where the positions of all images decide: those for each column of a tile, and its columns. */
#define POSITIONS_PER_COLUMN 8
#define LEAST_POSITIONS 64

/* Limits of a part: floats of a tile, and output channels of one product with them as its depth. */
#define PART_BLOCK 64

/* How a convolution is cut into products, and the sizes of their operands in the workspace. */
typedef struct {
    const jw_conv *conv;
    int direct;                      /* the input itself is the unfolded input */
    int staged;                      /* tiles of several images */
    int correlates;                  /* a weight gradient, computed without unfolding */
    jw_index images, rows, channels; /* of a tile */
    jw_index block;                  /* output channels of one product */
    jw_index tiles;
    jw_index tile_floats, stage_floats, frame_floats, matmul_floats;
} plan;

/* Size of equal parts when `whole` is cut into the fewest parts of at most `part`. */
static jw_index evenly(jw_index whole, jw_index part) {
    return jw_ceil_div(whole, jw_ceil_div(whole, jw_max(jw_min(part, whole), 1)));
}

/* Whether the input is used as the unfolded input that it is. */
static int is_direct(const jw_conv *conv) {
    const int pointwise = conv->taps == 1 && conv->y.stride == 1 && conv->x.stride == 1 &&
                          conv->in_plane == conv->out_plane;
    return pointwise && (conv->batch == 1 || 8 * conv->out_plane >= TILE_COLUMNS);
}

/* Make the tiles of a part smaller in the direction that changes no order of additions. Operations
 * are computed in parts where memory is scarce. */
static void shrink(plan *p, jw_conv_role role) {
    const jw_conv *conv = p->conv;
    const jw_index positions = jw_min(p->images * p->rows * conv->x.out, TILE_DEPTH);
    const jw_index columns = PART_FLOATS / jw_min(p->channels * conv->taps, TILE_DEPTH);
    if (p->staged || role == JW_CONV_COLUMNS || role == JW_CONV_GATHER) {
        p->block = jw_min(p->block, PART_BLOCK);
    }
    switch (role) {
    case JW_CONV_FORWARD: /* sums over the rows of a tile */
    case JW_CONV_GATHER:
        if (p->staged) {
            p->images = evenly(conv->batch, jw_min(p->images, columns / conv->out_plane));
        } else {
            p->rows = evenly(conv->y.out, jw_min(p->rows, columns / conv->x.out));
        }
        break;
    case JW_CONV_COLUMNS:
        p->channels = conv->group_in;
        break;
    case JW_CONV_FOLD: /* channels share nothing */
        p->channels = 1;
        break;
    default: /* sums over the columns of a tile */
        p->channels =
            evenly(conv->group_in, jw_min(p->channels, PART_FLOATS / positions / conv->taps));
    }
}

/* Most columns of a tile: fewer if a tile would be large beside the tensors, so that the workspace of
 * a small convolution is small. Where sums run along columns, or the columns are kept, the tiles of
 * a block must be those of the whole, which has more channels: positions alone decide. */
static jw_index most_columns(const jw_conv *conv, int sums_rows) {
    jw_index columns, least;
    if (sums_rows) {
        const jw_index tensors = conv->batch * (conv->in_channels * conv->in_plane +
                                                conv->out_channels * conv->out_plane);
        const jw_index depth = conv->in_channels / conv->groups * conv->taps;
        columns = tensors / TENSORS_PER_TILE / jw_min(depth, TILE_DEPTH);
        least = LEAST_COLUMNS;
    } else {
        columns = conv->batch * conv->out_plane / POSITIONS_PER_COLUMN;
        least = LEAST_POSITIONS;
    }
    return jw_min(jw_max(columns, least), TILE_COLUMNS);
}

static plan plan_of(const jw_conv *conv, jw_conv_role role) {
    plan p;
    p.conv = conv;
    p.direct = is_direct(conv);
    const int sums_rows = role == JW_CONV_FORWARD || role == JW_CONV_GATHER;
    const jw_index most = most_columns(conv, sums_rows);
    p.images = p.direct ? 1 : evenly(conv->batch, most / conv->out_plane);
    p.staged = p.images > 1;
    p.rows = p.direct || p.staged ? conv->y.out : evenly(conv->y.out, most / conv->x.out);
    const jw_index positions = p.images * p.rows * conv->x.out;
    const jw_index rows = jw_min(TILE_FLOATS / positions, sums_rows ? TILE_DEPTH : TILE_FLOATS);
    p.channels = p.direct ? conv->group_in : evenly(conv->group_in, rows / conv->taps);
    p.block =
        p.staged ? jw_min(jw_max(TILE_FLOATS / positions, 1), conv->group_out) : conv->group_out;
    if (conv->is_part) {
        shrink(&p, role);
    }
    p.correlates = JW_CORRELATES && role == JW_CONV_PARAMETER_GRADIENT &&
                   jw_correlates(conv, p.images * p.rows * conv->x.out);
    if (p.correlates) {
        p.channels = conv->group_in;
    }
    p.tiles = conv->groups * jw_ceil_div(conv->batch, p.images) * jw_ceil_div(conv->y.out, p.rows) *
              jw_ceil_div(conv->group_in, p.channels);

    const jw_index columns = p.images * p.rows * conv->x.out, depth = p.channels * conv->taps;
    const int has_tile = !p.direct && !p.correlates && role != JW_CONV_COLUMNS;
    const int has_stage = p.staged && role != JW_CONV_FOLD;
    p.tile_floats = has_tile ? jw_padded(depth * columns) : 0;
    p.stage_floats = has_stage ? jw_padded(p.block * columns) : 0;
    p.frame_floats = has_tile ? jw_frame_floats(conv, p.rows) : 0;
    switch (role) {
    case JW_CONV_FORWARD:
        p.matmul_floats = jw_matmul_workspace(columns, depth);
        break;
    case JW_CONV_GATHER:
        p.matmul_floats = conv->taps > 1 ? jw_flipped_workspace(p.block, columns, depth)
                                         : jw_matmul_workspace(columns, depth);
        break;
    case JW_CONV_PARAMETER_GRADIENT:
        p.matmul_floats = JW_CORRELATES && p.correlates
                              ? jw_correlation_floats(conv, p.images, p.rows)
                              : jw_matmul_workspace(depth, columns);
        break;
    case JW_CONV_FOLD:
        p.matmul_floats = 0;
        break;
    default:
        p.matmul_floats = jw_matmul_workspace(columns, p.block);
    }
    return p;
}

/* Tile number `index`; channels vary fastest, then rows, images, groups. */
static jw_tile tile_at(const plan *p, jw_index index) {
    const jw_index channel_tiles = jw_ceil_div(p->conv->group_in, p->channels);
    const jw_index row_tiles = jw_ceil_div(p->conv->y.out, p->rows);
    const jw_index image_tiles = jw_ceil_div(p->conv->batch, p->images);
    jw_tile t;
    const jw_index skipped = index % channel_tiles * p->channels;
    t.channels = jw_min(p->channels, p->conv->group_in - skipped);
    index /= channel_tiles;
    t.row = index % row_tiles * p->rows;
    t.rows = jw_min(p->rows, p->conv->y.out - t.row);
    index /= row_tiles;
    t.image = index % image_tiles * p->images;
    t.images = jw_min(p->images, p->conv->batch - t.image);
    t.group = index / image_tiles;
    t.channel = t.group * p->conv->group_in + skipped;
    t.depth = t.channels * p->conv->taps;
    t.columns = t.images * t.rows * p->conv->x.out;
    return t;
}

/* Index of the tile's first input element, if the input is the unfolded input. */
static jw_index input_at(const plan *p, const jw_tile *t) {
    return (t->image * p->conv->in_channels + t->channel) * p->conv->in_plane +
           t->row * p->conv->x.in;
}

/* Index of the tile's first output row, for output channel `channel` of its group. */
static jw_index output_at(const plan *p, const jw_tile *t, jw_index channel) {
    return (t->image * p->conv->out_channels + t->group * p->conv->group_out + channel) *
               p->conv->out_plane +
           t->row * p->conv->x.out;
}

/* Index of the weights from the tile to output channel `channel` of its group. Those of the next
 * channel follow after `filter` floats. */
static jw_index weight_at(const plan *p, const jw_tile *t, jw_index channel) {
    return (t->group * p->conv->group_out + channel) * p->conv->filter +
           (t->channel - t->group * p->conv->group_in) * p->conv->taps;
}

/* Parts of the workspace, which begins with the tile. */
static float *frame(const plan *p, float *workspace) {
    return p->frame_floats > 0 ? workspace + p->tile_floats + p->stage_floats : NULL;
}

static float *scratch(const plan *p, float *workspace) {
    return workspace + p->tile_floats + p->stage_floats + p->frame_floats;
}

static jw_matrix unfolded(const plan *p, const jw_tile *t, const float *input, float *workspace) {
    if (p->direct) {
        return jw_plain(input + input_at(p, t), p->conv->in_plane);
    }
    jw_unfold(p->conv, t, input, workspace, frame(p, workspace));
    return jw_plain(workspace, t->columns);
}

static jw_matrix staged(const plan *p, const jw_tile *t, jw_index channel, jw_index channels,
                        const float *output, float *workspace) {
    float *stage = workspace + p->tile_floats;
    if (!p->staged) {
        return jw_plain(output + output_at(p, t, channel), p->conv->out_plane);
    }
    jw_gather(p->conv, t, channel, channels, output, stage);
    return jw_plain(stage, t->columns);
}

/* The filters of a reversed convolution from a channel that it reads to one that it writes, and on. */
static jw_filters seen_from_output(const plan *p, const float *weight, jw_index read,
                                   jw_index written) {
    const jw_conv *conv = p->conv;
    const jw_filters seen = {weight + read * conv->filter + written * conv->taps, conv->filter,
                             conv->taps, p->channels};
    return seen;
}

/* Add a tile's products with the filters of some output channels, from `channel` of its group on, to
 * their sums. */
static void add_products(const plan *p, const jw_tile *t, jw_conv_role role, jw_index channel,
                         jw_index channels, const float *weight, jw_matrix columns, int continues,
                         float *sums, jw_index leading, float *workspace) {
    const jw_conv *conv = p->conv;
    if (role == JW_CONV_FORWARD) {
        jw_matmul_chained(channels, t->columns, t->depth,
                          jw_plain(weight + weight_at(p, t, channel), conv->filter), columns,
                          continues, sums, leading, workspace);
        return;
    }
    const jw_filters seen = seen_from_output(p, weight, t->channel, channel);
    if (conv->taps == 1) {
        jw_matmul_chained(channels, t->columns, t->depth, jw_transposed(seen.data, seen.leading),
                          columns, continues, sums, leading, workspace);
    } else {
        jw_matmul_flipped(channels, t->columns, t->channels, seen, columns, continues, sums,
                          leading, workspace);
    }
}

/* Sum over windows: each element is one chain of additions, over the input channels and, within a
 * channel, the taps. It goes on from `output` if `continues`, and begins with the bias otherwise. */
static JW_APART void sum_windows(const jw_conv *conv, jw_conv_role role, const float *input,
                                 const float *weight, const float *bias, int continues,
                                 float *output, float *workspace) {
    const plan p = plan_of(conv, role);
    if (bias) {
        for (jw_index n = 0; n < conv->batch; n++) {
            for (jw_index c = 0; c < conv->groups * conv->group_out; c++) {
                jw_fill(output + (n * conv->out_channels + c) * conv->out_plane, bias[c],
                        conv->out_plane);
            }
        }
    }
    if (role == JW_CONV_GATHER && conv->taps > 1) {
        jw_flip(seen_from_output(&p, weight, 0, 0), scratch(&p, workspace));
    }
    for (jw_index i = 0; i < p.tiles; i++) {
        const jw_tile t = tile_at(&p, i);
        const jw_matrix columns = unfolded(&p, &t, input, workspace);
        const int goes_on = continues || bias || t.channel > t.group * conv->group_in;
        for (jw_index c = 0; c < conv->group_out; c += p.block) {
            const jw_index block = jw_min(p.block, conv->group_out - c);
            if (p.staged) {
                float *stage = workspace + p.tile_floats;
                if (goes_on) {
                    jw_gather(conv, &t, c, block, output, stage);
                }
                add_products(&p, &t, role, c, block, weight, columns, goes_on, stage, t.columns,
                             scratch(&p, workspace));
                jw_scatter(conv, &t, c, block, stage, output);
            } else {
                add_products(&p, &t, role, c, block, weight, columns, goes_on,
                             output + output_at(&p, &t, c), conv->out_plane,
                             scratch(&p, workspace));
            }
        }
    }
}

void jw_conv_forward(const jw_conv *conv, const float *input, const float *weight,
                     const float *bias, int continues, float *output, float *workspace) {
    if (jw_is_depthwise(conv)) {
        jw_depthwise_forward(conv, input, weight, bias, output, workspace);
    } else {
        sum_windows(conv, JW_CONV_FORWARD, input, weight, bias, continues, output, workspace);
    }
}

int jw_gathers(const jw_conv *conv) {
    return conv->y.stride == 1 && conv->x.stride == 1 && conv->in_plane <= conv->out_plane &&
           !jw_is_depthwise(conv);
}

static void reverse_axis(jw_axis *axis) {
    const jw_index in = axis->in;
    axis->pad = jw_extent(axis) - 1 - axis->pad;
    axis->in = axis->out;
    axis->out = in;
}

static void exchange(jw_index *one, jw_index *other) {
    const jw_index value = *one;
    *one = *other;
    *other = value;
}

/* Make a convolution the one that reads the output's gradient and writes the input's. */
static void reverse(jw_conv *conv) {
    exchange(&conv->in_channels, &conv->out_channels);
    exchange(&conv->group_in, &conv->group_out);
    exchange(&conv->in_plane, &conv->out_plane);
    reverse_axis(&conv->y);
    reverse_axis(&conv->x);
}

JW_APART void jw_conv_gather(const jw_conv *conv, const float *output_gradient, const float *weight,
                             int continues, float *input_gradient, float *workspace) {
    jw_conv reversed = *conv;
    reverse(&reversed);
    sum_windows(&reversed, JW_CONV_GATHER, output_gradient, weight, NULL, continues, input_gradient,
                workspace);
}

/* The unfolded input gradient of a tile, or its sum over some more output channels. */
static void gradient_of_columns(const plan *p, const jw_tile *t, const float *output_gradient,
                                const float *weight, int continues, float *columns,
                                float *workspace) {
    for (jw_index c = 0; c < p->conv->group_out; c += p->block) {
        const jw_index block = jw_min(p->block, p->conv->group_out - c);
        jw_matmul_chained(t->depth, t->columns, block,
                          jw_transposed(weight + weight_at(p, t, c), p->conv->filter),
                          staged(p, t, c, block, output_gradient, workspace), continues || c > 0,
                          columns, t->columns, scratch(p, workspace));
    }
}

static void clear_input_gradient(const jw_conv *conv, float *input_gradient) {
    for (jw_index n = 0; n < conv->batch; n++) {
        jw_fill(input_gradient + n * conv->in_channels * conv->in_plane, 0.0f,
                conv->groups * conv->group_in * conv->in_plane);
    }
}

static JW_APART void fold_columns(const jw_conv *conv, const float *output_gradient,
                                  const float *weight, float *input_gradient, float *workspace) {
    const plan p = plan_of(conv, JW_CONV_INPUT_GRADIENT);
    clear_input_gradient(conv, input_gradient);
    for (jw_index i = 0; i < p.tiles; i++) {
        const jw_tile t = tile_at(&p, i);
        gradient_of_columns(&p, &t, output_gradient, weight, 0, workspace, workspace);
        jw_fold(conv, &t, workspace, input_gradient, frame(&p, workspace));
    }
}

static void input_gradient(const jw_conv *conv, const jw_call *call) {
    const float *output_gradient = call->reads[0], *weight = call->reads[1];
    float *image = call->writes[0], *workspace = call->workspace;

    if (jw_is_depthwise(conv)) {
        jw_depthwise_input_gradient(conv, output_gradient, weight, image, workspace);
    } else if (jw_gathers(conv)) {
        jw_conv_gather(conv, output_gradient, weight, 0, image, workspace);
    } else {
        fold_columns(conv, output_gradient, weight, image, workspace);
    }
}

void jw_conv_columns(const jw_conv *conv, const float *output_gradient, const float *weight,
                     int continues, float *columns, float *workspace) {
    const plan p = plan_of(conv, JW_CONV_COLUMNS);
    for (jw_index i = 0; i < p.tiles; i++) {
        const jw_tile t = tile_at(&p, i);
        gradient_of_columns(&p, &t, output_gradient, weight, continues, columns, workspace);
        columns += t.depth * t.columns;
    }
}

void jw_conv_fold(const jw_conv *conv, const float *columns, float *input_gradient,
                  float *workspace) {
    const plan p = plan_of(conv, JW_CONV_FOLD);
    clear_input_gradient(conv, input_gradient);
    for (jw_index i = 0; i < p.tiles; i++) {
        const jw_tile t = tile_at(&p, i);
        /* a copy, since jw_fold overwrites it */
        memcpy(workspace, columns, (size_t)(t.depth * t.columns) * sizeof(float));
        jw_fold(conv, &t, workspace, input_gradient, frame(&p, workspace));
        columns += t.depth * t.columns;
    }
}

void jw_sum_over_positions(jw_index batch, jw_index image, jw_index channels, jw_index plane,
                           const float *output_gradient, float *bias_gradient) {
    for (jw_index c = 0; c < channels; c++) {
        float lanes[JW_LANES];
        jw_clear_lanes(lanes);
        for (jw_index n = 0; n < batch; n++) {
            jw_add_sum(lanes, output_gradient + n * image + c * plane, plane);
        }
        bias_gradient[c] = jw_fold_lanes(lanes);
    }
}

void jw_conv_parameter_gradient(const jw_conv *conv, const jw_call *call) {
    const float *input = call->reads[0], *output_gradient = call->reads[1];
    float *weight_gradient = call->writes[0], *workspace = call->workspace;

    if (conv->has_bias) {
        jw_sum_over_positions(conv->batch, conv->out_channels * conv->out_plane,
                              conv->groups * conv->group_out, conv->out_plane, output_gradient,
                              call->writes[1]);
    }
    if (jw_is_depthwise(conv)) {
        jw_depthwise_weight_gradient(conv, input, output_gradient, weight_gradient, workspace);
        return;
    }
    const plan p = plan_of(conv, JW_CONV_PARAMETER_GRADIENT);
    for (jw_index i = 0; i < p.tiles; i++) {
        const jw_tile t = tile_at(&p, i);
        const int is_first = t.image == 0 && t.row == 0;
        jw_matrix columns = {NULL, 0, 1};
        if (!p.correlates) {
            columns = unfolded(&p, &t, input, workspace);
            columns.transposed = 1;
        }
        for (jw_index c = 0; c < conv->group_out; c += p.block) {
            const jw_index block = jw_min(p.block, conv->group_out - c);
            const jw_matrix gradient = staged(&p, &t, c, block, output_gradient, workspace);
            float *target = weight_gradient + weight_at(&p, &t, c);
            if (JW_CORRELATES && p.correlates) {
                jw_correlate(conv, &t, input, block, gradient, !is_first, target,
                             scratch(&p, workspace));
            } else {
                jw_matmul(block, t.depth, t.columns, 1.0f, gradient, columns,
                          is_first ? 0.0f : 1.0f, target, conv->filter, scratch(&p, workspace));
            }
        }
    }
}

size_t jw_conv_workspace(const jw_conv *conv, jw_conv_role role) {
    jw_index floats;
    if (jw_is_depthwise(conv)) {
        floats = role == JW_CONV_FORWARD          ? jw_depthwise_forward_workspace(conv)
                 : role == JW_CONV_INPUT_GRADIENT ? jw_depthwise_input_gradient_workspace(conv)
                                                  : jw_depthwise_weight_gradient_workspace(conv);
    } else {
        const int gathers =
            role == JW_CONV_GATHER || (role == JW_CONV_INPUT_GRADIENT && jw_gathers(conv));
        jw_conv reversed = *conv;
        reverse(&reversed);
        const plan p = gathers ? plan_of(&reversed, JW_CONV_GATHER) : plan_of(conv, role);
        floats = p.tile_floats + p.stage_floats + p.frame_floats + p.matmul_floats;
    }
    return (size_t)floats * sizeof(float);
}

static void forward(const jw_conv *conv, const jw_call *call) {
    jw_conv_forward(conv, call->reads[0], call->reads[1], conv->has_bias ? call->reads[2] : NULL, 0,
                    call->writes[0], call->workspace);
}

static jw_conv dilated(const int32_t *attributes) {
    return jw_dilated_conv(attributes, attributes + 15);
}

void jw_conv2d_forward(const jw_call *call) {
    const jw_conv conv = jw_conv_of(call->attributes);
    forward(&conv, call);
}

void jw_conv2d_input_gradient(const jw_call *call) {
    const jw_conv conv = jw_conv_of(call->attributes);
    input_gradient(&conv, call);
}

void jw_conv2d_parameter_gradient(const jw_call *call) {
    const jw_conv conv = jw_conv_of(call->attributes);
    jw_conv_parameter_gradient(&conv, call);
}

size_t jw_conv2d_forward_workspace(const int32_t *attributes) {
    const jw_conv conv = jw_conv_of(attributes);
    return jw_conv_workspace(&conv, JW_CONV_FORWARD);
}

size_t jw_conv2d_input_gradient_workspace(const int32_t *attributes) {
    const jw_conv conv = jw_conv_of(attributes);
    return jw_conv_workspace(&conv, JW_CONV_INPUT_GRADIENT);
}

size_t jw_conv2d_parameter_gradient_workspace(const int32_t *attributes) {
    const jw_conv conv = jw_conv_of(attributes);
    return jw_conv_workspace(&conv, JW_CONV_PARAMETER_GRADIENT);
}

void jw_dilated_conv2d_forward(const jw_call *call) {
    const jw_conv conv = dilated(call->attributes);
    forward(&conv, call);
}

void jw_dilated_conv2d_input_gradient(const jw_call *call) {
    const jw_conv conv = dilated(call->attributes);
    input_gradient(&conv, call);
}

void jw_dilated_conv2d_parameter_gradient(const jw_call *call) {
    const jw_conv conv = dilated(call->attributes);
    jw_conv_parameter_gradient(&conv, call);
}

size_t jw_dilated_conv2d_forward_workspace(const int32_t *attributes) {
    const jw_conv conv = dilated(attributes);
    return jw_conv_workspace(&conv, JW_CONV_FORWARD);
}

size_t jw_dilated_conv2d_input_gradient_workspace(const int32_t *attributes) {
    const jw_conv conv = dilated(attributes);
    return jw_conv_workspace(&conv, JW_CONV_INPUT_GRADIENT);
}

size_t jw_dilated_conv2d_parameter_gradient_workspace(const int32_t *attributes) {
    const jw_conv conv = dilated(attributes);
    return jw_conv_workspace(&conv, JW_CONV_PARAMETER_GRADIENT);
}
