/* Unfold windows of images into columns for matrix products, and fold columns back. */
#include "conv2d.h"

/* Rows and columns of a tile at which a tap reads inside the input. */
typedef struct {
    jw_index top, bottom, left, right;
    jw_index shift_y, shift_x; /* from output position, times stride, to input position */
} span;

static span span_of(const jw_conv *conv, const jw_tile *tile, jw_index ky, jw_index kx) {
    span s;
    s.top = jw_min(jw_max(jw_first(&conv->y, ky) - tile->row, 0), tile->rows);
    s.bottom = jw_max(jw_min(jw_last(&conv->y, ky) - tile->row, tile->rows), s.top);
    s.left = jw_first(&conv->x, kx);
    s.right = jw_last(&conv->x, kx);
    s.shift_y = jw_source(&conv->y, tile->row, ky);
    s.shift_x = jw_source(&conv->x, 0, kx);
    return s;
}

static int is_empty(const span *s) {
    return s->top >= s->bottom || s->left >= s->right;
}

/* With stride 1 and output rows as long as input rows, a tap reads a shifted copy of the plane,
 * except for elements that wrap around at the sides. Copying it as one piece is much faster for
 * short rows. */
static int is_shifted_plane(const jw_conv *conv) {
    return conv->x.stride == 1 && conv->y.stride == 1 && conv->x.out == conv->x.in;
}

static void clear_sides(float *columns, const span *s, jw_index width) {
    for (jw_index x = 0; x < s->left; x++) {
        for (jw_index r = s->top; r < s->bottom; r++) {
            columns[r * width + x] = 0.0f;
        }
    }
    for (jw_index x = s->right; x < width; x++) {
        for (jw_index r = s->top; r < s->bottom; r++) {
            columns[r * width + x] = 0.0f;
        }
    }
}

static void unfold_shifted(const span *s, jw_index width, const float *restrict plane,
                           float *restrict columns) {
    const jw_index first = s->top * width + s->left, last = (s->bottom - 1) * width + s->right;
    memcpy(columns + first, plane + (s->shift_y * width + s->shift_x + first),
           (size_t)(last - first) * sizeof(float));
    clear_sides(columns, s, width);
}

static void unfold_rows(const jw_conv *conv, const span *s, const float *restrict plane,
                        float *restrict columns) {
    const jw_index width = conv->x.out;
    for (jw_index r = s->top; r < s->bottom; r++) {
        const float *source = plane + (s->shift_y + r * conv->y.stride) * conv->x.in;
        float *target = columns + r * width;
        if (conv->x.stride == 1) {
            for (jw_index x = s->left; x < s->right; x++) {
                target[x] = source[x + s->shift_x];
            }
        } else {
            for (jw_index x = s->left; x < s->right; x++) {
                target[x] = source[x * conv->x.stride + s->shift_x];
            }
        }
    }
    clear_sides(columns, s, width);
}

/* Planes of at most so many output positions have rows too short to be copied one by one. Tiles of
 * such convolutions are whole planes. */
#define MOST_TABULATED 32

static int is_tabulated(const jw_conv *conv) {
    return conv->out_plane <= MOST_TABULATED;
}

jw_index jw_table_floats(const jw_conv *conv) {
    return is_tabulated(conv) ? jw_padded(conv->taps * conv->out_plane + conv->in_plane + 1) : 0;
}

/* The table: index in the input plane by tap and position, that of the element after the plane for
 * padding. After the table is room for such a plane. */
void jw_tabulate(const jw_conv *conv, float *workspace) {
    int32_t *table = (int32_t *)(void *)workspace;
    if (!is_tabulated(conv)) {
        return;
    }
    for (jw_index ky = 0; ky < conv->y.kernel; ky++) {
        for (jw_index kx = 0; kx < conv->x.kernel; kx++) {
            for (jw_index row = 0; row < conv->y.out; row++) {
                const jw_index y = jw_source(&conv->y, row, ky);
                for (jw_index column = 0; column < conv->x.out; column++) {
                    const jw_index x = jw_source(&conv->x, column, kx);
                    const int is_inside = y >= 0 && y < conv->y.in && x >= 0 && x < conv->x.in;
                    *table++ = (int32_t)(is_inside ? y * conv->x.in + x : conv->in_plane);
                }
            }
        }
    }
}

/* Index of the input plane of a channel and an image of the tile. */
static jw_index input_plane(const jw_conv *conv, const jw_tile *tile, jw_index channel,
                            jw_index image) {
    return ((tile->image + image) * conv->in_channels + tile->channel + channel) * conv->in_plane;
}

static void unfold_planes(const jw_conv *conv, const jw_tile *tile, const float *input,
                          float *restrict columns, float *workspace) {
    const jw_index positions = conv->out_plane;
    const int32_t *restrict table = (const int32_t *)(const void *)workspace;
    float *restrict plane = workspace + conv->taps * positions;
    plane[conv->in_plane] = 0.0f;
    for (jw_index c = 0; c < tile->channels; c++, columns += conv->taps * tile->columns) {
        for (jw_index n = 0; n < tile->images; n++) {
            memcpy(plane, input + input_plane(conv, tile, c, n),
                   (size_t)conv->in_plane * sizeof(float));
            if (tile->images == 1) { /* one loop instead of many short ones */
                for (jw_index i = 0; i < conv->taps * positions; i++) {
                    columns[i] = plane[table[i]];
                }
                continue;
            }
            for (jw_index tap = 0; tap < conv->taps; tap++) {
                const int32_t *restrict from = table + tap * positions;
                float *restrict to = columns + tap * tile->columns + n * positions;
                for (jw_index i = 0; i < positions; i++) {
                    to[i] = plane[from[i]];
                }
            }
        }
    }
}

static void fold_planes(const jw_conv *conv, const jw_tile *tile, const float *restrict columns,
                        float *input_gradient, float *workspace) {
    const jw_index positions = conv->out_plane;
    const int32_t *restrict table = (const int32_t *)(const void *)workspace;
    float *restrict plane = workspace + conv->taps * positions;
    plane[conv->in_plane] = 0.0f; /* receives what would be added to padding */
    for (jw_index c = 0; c < tile->channels; c++, columns += conv->taps * tile->columns) {
        for (jw_index n = 0; n < tile->images; n++) {
            float *target = input_gradient + input_plane(conv, tile, c, n);
            memcpy(plane, target, (size_t)conv->in_plane * sizeof(float));
            for (jw_index tap = 0; tap < conv->taps; tap++) {
                const int32_t *restrict to = table + tap * positions;
                const float *restrict from = columns + tap * tile->columns + n * positions;
                for (jw_index i = 0; i < positions; i++) {
                    plane[to[i]] += from[i];
                }
            }
            memcpy(target, plane, (size_t)conv->in_plane * sizeof(float));
        }
    }
}

void jw_unfold(const jw_conv *conv, const jw_tile *tile, const float *input, float *columns,
               float *table) {
    if (is_tabulated(conv)) {
        unfold_planes(conv, tile, input, columns, table);
        return;
    }
    const jw_index width = conv->x.out, rows = tile->rows;
    const int shifted_plane = is_shifted_plane(conv);

    for (jw_index c = 0; c < tile->channels; c++) {
        for (jw_index ky = 0; ky < conv->y.kernel; ky++) {
            for (jw_index kx = 0; kx < conv->x.kernel; kx++) {
                const span s = span_of(conv, tile, ky, kx);
                for (jw_index n = 0; n < tile->images; n++, columns += rows * width) {
                    const float *plane = input + input_plane(conv, tile, c, n);
                    if (is_empty(&s)) {
                        jw_fill(columns, 0.0f, rows * width);
                        continue;
                    }
                    jw_fill(columns, 0.0f, s.top * width);
                    if (shifted_plane) {
                        unfold_shifted(&s, width, plane, columns);
                    } else {
                        unfold_rows(conv, &s, plane, columns);
                    }
                    jw_fill(columns + s.bottom * width, 0.0f, (rows - s.bottom) * width);
                }
            }
        }
    }
}

static void fold_shifted(const span *s, jw_index width, float *restrict columns,
                         float *restrict plane) {
    const jw_index first = s->top * width + s->left, last = (s->bottom - 1) * width + s->right;
    const jw_index shift = s->shift_y * width + s->shift_x;
    clear_sides(columns, s, width);
    for (jw_index i = first; i < last; i++) {
        plane[i + shift] += columns[i];
    }
}

static void fold_rows(const jw_conv *conv, const span *s, const float *restrict columns,
                      float *restrict plane) {
    for (jw_index r = s->top; r < s->bottom; r++) {
        const float *source = columns + r * conv->x.out;
        float *target = plane + (s->shift_y + r * conv->y.stride) * conv->x.in;
        if (conv->x.stride == 1) {
            for (jw_index x = s->left; x < s->right; x++) {
                target[x + s->shift_x] += source[x];
            }
        } else {
            for (jw_index x = s->left; x < s->right; x++) {
                target[x * conv->x.stride + s->shift_x] += source[x];
            }
        }
    }
}

void jw_fold(const jw_conv *conv, const jw_tile *tile, float *columns, float *input_gradient,
             float *table) {
    if (is_tabulated(conv)) {
        fold_planes(conv, tile, columns, input_gradient, table);
        return;
    }
    const jw_index width = conv->x.out;
    const int shifted_plane = is_shifted_plane(conv);

    for (jw_index c = 0; c < tile->channels; c++) {
        for (jw_index ky = 0; ky < conv->y.kernel; ky++) {
            for (jw_index kx = 0; kx < conv->x.kernel; kx++) {
                const span s = span_of(conv, tile, ky, kx);
                for (jw_index n = 0; n < tile->images; n++, columns += tile->rows * width) {
                    float *plane = input_gradient + input_plane(conv, tile, c, n);
                    if (is_empty(&s)) {
                        continue;
                    }
                    if (shifted_plane) {
                        fold_shifted(&s, width, columns, plane);
                    } else {
                        fold_rows(conv, &s, columns, plane);
                    }
                }
            }
        }
    }
}

static jw_index output_plane(const jw_conv *conv, const jw_tile *tile, jw_index image,
                             jw_index channel) {
    return ((tile->image + image) * conv->out_channels + tile->group * conv->group_out + channel) *
           conv->out_plane;
}

void jw_gather(const jw_conv *conv, const jw_tile *tile, jw_index channel, jw_index channels,
               const float *output, float *stage) {
    for (jw_index c = 0; c < channels; c++) {
        for (jw_index n = 0; n < tile->images; n++, stage += conv->out_plane) {
            memcpy(stage, output + output_plane(conv, tile, n, channel + c),
                   (size_t)conv->out_plane * sizeof(float));
        }
    }
}

void jw_scatter(const jw_conv *conv, const jw_tile *tile, jw_index channel, jw_index channels,
                const float *stage, float *output) {
    for (jw_index c = 0; c < channels; c++) {
        for (jw_index n = 0; n < tile->images; n++, stage += conv->out_plane) {
            memcpy(output + output_plane(conv, tile, n, channel + c), stage,
                   (size_t)conv->out_plane * sizeof(float));
        }
    }
}
