/* Convolution as matrix products over tiles.
 *
 * The unfolded input ("columns": one row per input channel and tap, one column per output position)
 * is never whole in memory: it is made and used tile by tile. A tile covers some channels of one
 * group and either whole output rows of one image or the whole planes of several images; in the
 * latter case the output side of the product is staged, for its images are apart in memory. */
#include "conv2d.h"
#include "kernels.h"

/* Floats of one tile, and of the stage. */
#if JW_SMALL_MEMORY
#define TILE_FLOATS 2048
#define TILE_COLUMNS 32
#else
#define TILE_FLOATS 65536
#define TILE_COLUMNS 256
#endif

typedef enum { FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT } role;

typedef struct {
    int direct;        /* the input itself is the unfolded input */
    jw_index images;   /* of a tile */
    jw_index rows;     /* output rows of a tile, in each of its images */
    jw_index channels; /* input channels of a tile */
    jw_index columns;  /* images * rows * out_width */
    int staged;
    jw_index stage_channels; /* output channels staged at once */
    jw_index tile_floats, stage_floats, matmul_floats;
} plan;

static plan plan_of(const jw_conv *conv, role what)
{
    plan p;
    const int pointwise = conv->taps == 1 && conv->y.stride == 1 && conv->x.stride == 1 &&
                          conv->in_plane == conv->out_plane;
    p.direct = pointwise && (conv->batch == 1 || 8 * conv->out_plane >= TILE_COLUMNS);
    if (p.direct || 2 * conv->out_plane > TILE_COLUMNS) {
        p.images = 1;
        p.rows = jw_min(jw_max(TILE_COLUMNS / conv->x.out, 1), conv->y.out);
        p.rows = jw_ceil_div(conv->y.out, jw_ceil_div(conv->y.out, p.rows));
    } else {
        p.images = jw_min(TILE_COLUMNS / conv->out_plane, conv->batch);
        p.images = jw_ceil_div(conv->batch, jw_ceil_div(conv->batch, p.images));
        p.rows = conv->y.out;
    }
    p.columns = p.images * p.rows * conv->x.out;
    p.channels = jw_max(TILE_FLOATS / (conv->taps * p.columns), 1);
    p.channels = jw_min(p.channels, conv->group_in);
    p.channels = jw_ceil_div(conv->group_in, jw_ceil_div(conv->group_in, p.channels));
    p.staged = p.images > 1;
    p.stage_channels = conv->group_out;
    if (p.staged)
        p.stage_channels = jw_min(jw_max(TILE_FLOATS / p.columns, 1), conv->group_out);
    if (p.direct) {
        p.channels = conv->group_in;
        p.columns = conv->out_plane;
    }
    const jw_index depth = p.channels * conv->taps;
    p.tile_floats = p.direct ? 0 : jw_padded(depth * p.columns);
    p.stage_floats = p.staged ? jw_padded(p.stage_channels * p.columns) : 0;
    p.matmul_floats = what == FORWARD          ? jw_matmul_workspace(p.columns, depth)
                      : what == INPUT_GRADIENT ? jw_matmul_workspace(p.columns, p.stage_channels)
                                               : jw_matmul_workspace(depth, p.columns);
    return p;
}

static size_t plan_bytes(const plan *p)
{
    return (size_t)(p->tile_floats + p->stage_floats + p->matmul_floats) * sizeof(float);
}

/* The tile at or after `t` in the order: channels, then rows, then images, then groups. Starts from
 * a tile with no images; false after the last. */
static int next_tile(const jw_conv *conv, const plan *p, jw_tile *t, jw_index *group)
{
    if (t->images == 0) {
        *group = t->image = t->row = t->channel = 0;
    } else {
        t->channel += t->channels;
        if (t->channel == (*group + 1) * conv->group_in) {
            t->channel = *group * conv->group_in;
            t->row += t->rows;
            if (t->row == conv->y.out) {
                t->row = 0;
                t->image += t->images;
                if (t->image == conv->batch) {
                    t->image = 0;
                    *group += 1;
                    t->channel = *group * conv->group_in;
                    if (*group == conv->groups)
                        return 0;
                }
            }
        }
    }
    t->images = jw_min(p->images, conv->batch - t->image);
    t->rows = jw_min(p->rows, conv->y.out - t->row);
    t->channels = jw_min(p->channels, (*group + 1) * conv->group_in - t->channel);
    return 1;
}

static void forward(const jw_call *call)
{
    const jw_conv conv = jw_conv_of(call->attributes);
    const float *input = call->reads[0], *weight = call->reads[1];
    const float *bias = conv.has_bias ? call->reads[2] : NULL;
    float *output = call->writes[0];

    if (jw_is_depthwise(&conv)) {
        jw_depthwise_forward(&conv, input, weight, bias, output, call->workspace);
        return;
    }
    const plan p = plan_of(&conv, FORWARD);
    float *columns = call->workspace, *stage = columns + p.tile_floats;
    float *scratch = stage + p.stage_floats;
    const jw_index depth = conv.group_in * conv.taps;

    const int fill = p.staged || conv.has_bias;
    if (fill)
        for (jw_index n = 0; n < conv.batch; n++)
            for (jw_index c = 0; c < conv.out_channels; c++)
                jw_fill(output + (n * conv.out_channels + c) * conv.out_plane,
                        bias ? bias[c] : 0.0f, conv.out_plane);
    if (p.direct) {
        for (jw_index n = 0; n < conv.batch; n++)
            for (jw_index g = 0; g < conv.groups; g++)
                jw_matmul(conv.group_out, conv.out_plane, depth, 1.0f,
                          jw_plain(weight + g * conv.group_out * depth, depth),
                          jw_plain(input + (n * conv.groups + g) * depth * conv.in_plane,
                                   conv.in_plane),
                          fill ? 1.0f : 0.0f,
                          output + (n * conv.groups + g) * conv.group_out * conv.out_plane,
                          conv.out_plane, scratch);
        return;
    }
    jw_tile t = {0};
    jw_index group = 0;
    while (next_tile(&conv, &p, &t, &group)) {
        const jw_index tile_columns = t.images * t.rows * conv.x.out;
        const jw_index tile_depth = t.channels * conv.taps;
        const jw_index skipped = (t.channel - group * conv.group_in) * conv.taps;
        jw_unfold(&conv, &t, input, columns);
        for (jw_index c = 0; c < conv.group_out; c += p.stage_channels) {
            const jw_index channel = group * conv.group_out + c;
            const jw_index channels = jw_min(p.stage_channels, conv.group_out - c);
            const jw_matrix filters = jw_plain(weight + channel * depth + skipped, depth);
            if (p.staged) {
                jw_matmul(channels, tile_columns, tile_depth, 1.0f, filters,
                          jw_plain(columns, tile_columns), 0.0f, stage, tile_columns, scratch);
                jw_scatter(&conv, &t, channel, channels, stage, output);
            } else {
                jw_matmul(channels, tile_columns, tile_depth, 1.0f, filters,
                          jw_plain(columns, tile_columns), fill || skipped ? 1.0f : 0.0f,
                          output + (t.image * conv.out_channels + channel) * conv.out_plane +
                              t.row * conv.x.out,
                          conv.out_plane, scratch);
            }
        }
    }
}

static void input_gradient(const jw_call *call)
{
    const jw_conv conv = jw_conv_of(call->attributes);
    const float *output_gradient = call->reads[0], *weight = call->reads[1];
    float *gradient = call->writes[0];

    if (jw_is_depthwise(&conv)) {
        jw_depthwise_input_gradient(&conv, output_gradient, weight, gradient, call->workspace);
        return;
    }
    const plan p = plan_of(&conv, INPUT_GRADIENT);
    float *columns = call->workspace, *stage = columns + p.tile_floats;
    float *scratch = stage + p.stage_floats;
    const jw_index depth = conv.group_in * conv.taps;

    if (p.direct) {
        for (jw_index n = 0; n < conv.batch; n++)
            for (jw_index g = 0; g < conv.groups; g++)
                jw_matmul(depth, conv.out_plane, conv.group_out, 1.0f,
                          jw_transposed(weight + g * conv.group_out * depth, depth),
                          jw_plain(output_gradient +
                                       (n * conv.groups + g) * conv.group_out * conv.out_plane,
                                   conv.out_plane),
                          0.0f, gradient + (n * conv.groups + g) * depth * conv.in_plane,
                          conv.in_plane, scratch);
        return;
    }
    jw_fill(gradient, 0.0f, conv.batch * conv.in_channels * conv.in_plane);
    jw_tile t = {0};
    jw_index group = 0;
    while (next_tile(&conv, &p, &t, &group)) {
        const jw_index tile_columns = t.images * t.rows * conv.x.out;
        const jw_index tile_depth = t.channels * conv.taps;
        const jw_index skipped = (t.channel - group * conv.group_in) * conv.taps;
        for (jw_index c = 0; c < conv.group_out; c += p.stage_channels) {
            const jw_index channel = group * conv.group_out + c;
            const jw_index channels = jw_min(p.stage_channels, conv.group_out - c);
            jw_matrix staged = jw_plain(stage, tile_columns);
            if (p.staged)
                jw_gather(&conv, &t, channel, channels, output_gradient, stage);
            else
                staged = jw_plain(output_gradient +
                                      (t.image * conv.out_channels + channel) * conv.out_plane +
                                      t.row * conv.x.out,
                                  conv.out_plane);
            jw_matmul(tile_depth, tile_columns, channels, 1.0f,
                      jw_transposed(weight + channel * depth + skipped, depth), staged,
                      c == 0 ? 0.0f : 1.0f, columns, tile_columns, scratch);
        }
        jw_fold(&conv, &t, columns, gradient);
    }
}

static void parameter_gradient(const jw_call *call)
{
    const jw_conv conv = jw_conv_of(call->attributes);
    const float *input = call->reads[0], *output_gradient = call->reads[1];
    float *weight_gradient = call->writes[0];

    if (conv.has_bias) {
        float *bias_gradient = call->writes[1];
        for (jw_index c = 0; c < conv.out_channels; c++) {
            float lanes[JW_LANES];
            jw_clear_lanes(lanes);
            for (jw_index n = 0; n < conv.batch; n++)
                jw_add_sum(lanes, output_gradient + (n * conv.out_channels + c) * conv.out_plane,
                           conv.out_plane);
            bias_gradient[c] = jw_fold_lanes(lanes);
        }
    }
    if (jw_is_depthwise(&conv)) {
        jw_depthwise_weight_gradient(&conv, input, output_gradient, weight_gradient,
                                     call->workspace);
        return;
    }
    const plan p = plan_of(&conv, WEIGHT_GRADIENT);
    float *columns = call->workspace, *stage = columns + p.tile_floats;
    float *scratch = stage + p.stage_floats;
    const jw_index depth = conv.group_in * conv.taps;

    if (p.direct) {
        for (jw_index n = 0; n < conv.batch; n++)
            for (jw_index g = 0; g < conv.groups; g++)
                jw_matmul(conv.group_out, depth, conv.out_plane, 1.0f,
                          jw_plain(output_gradient +
                                       (n * conv.groups + g) * conv.group_out * conv.out_plane,
                                   conv.out_plane),
                          jw_transposed(input + (n * conv.groups + g) * depth * conv.in_plane,
                                        conv.in_plane),
                          n == 0 ? 0.0f : 1.0f, weight_gradient + g * conv.group_out * depth,
                          depth, scratch);
        return;
    }
    jw_tile t = {0};
    jw_index group = 0;
    while (next_tile(&conv, &p, &t, &group)) {
        const jw_index tile_columns = t.images * t.rows * conv.x.out;
        const jw_index tile_depth = t.channels * conv.taps;
        const jw_index skipped = (t.channel - group * conv.group_in) * conv.taps;
        const int first = t.image == 0 && t.row == 0;
        jw_unfold(&conv, &t, input, columns);
        for (jw_index c = 0; c < conv.group_out; c += p.stage_channels) {
            const jw_index channel = group * conv.group_out + c;
            const jw_index channels = jw_min(p.stage_channels, conv.group_out - c);
            jw_matrix staged = jw_plain(stage, tile_columns);
            if (p.staged)
                jw_gather(&conv, &t, channel, channels, output_gradient, stage);
            else
                staged = jw_plain(output_gradient +
                                      (t.image * conv.out_channels + channel) * conv.out_plane +
                                      t.row * conv.x.out,
                                  conv.out_plane);
            jw_matmul(channels, tile_depth, tile_columns, 1.0f, staged,
                      jw_transposed(columns, tile_columns), first ? 0.0f : 1.0f,
                      weight_gradient + channel * depth + skipped, depth, scratch);
        }
    }
}

static size_t workspace_of(const int32_t *attributes, role what)
{
    const jw_conv conv = jw_conv_of(attributes);
    if (jw_is_depthwise(&conv)) {
        const jw_index floats = what == FORWARD ? jw_depthwise_forward_workspace(&conv)
                                : what == INPUT_GRADIENT
                                    ? jw_depthwise_input_gradient_workspace(&conv)
                                    : jw_depthwise_weight_gradient_workspace(&conv);
        return (size_t)floats * sizeof(float);
    }
    const plan p = plan_of(&conv, what);
    return plan_bytes(&p);
}

void jw_conv2d_forward(const jw_call *call)
{
    forward(call);
}

size_t jw_conv2d_forward_workspace(const int32_t *attributes)
{
    return workspace_of(attributes, FORWARD);
}

void jw_conv2d_input_gradient(const jw_call *call)
{
    input_gradient(call);
}

size_t jw_conv2d_input_gradient_workspace(const int32_t *attributes)
{
    return workspace_of(attributes, INPUT_GRADIENT);
}

void jw_conv2d_parameter_gradient(const jw_call *call)
{
    parameter_gradient(call);
}

size_t jw_conv2d_parameter_gradient_workspace(const int32_t *attributes)
{
    return workspace_of(attributes, WEIGHT_GRADIENT);
}
