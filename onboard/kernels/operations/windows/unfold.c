/* Unfold windows of images into columns for matrix products, and fold columns back. */
#include "conv2d.h"

jw_index jw_input_plane(const jw_conv *conv, const jw_tile *tile, jw_index channel,
                        jw_index image) {
    return ((tile->image + image) * conv->in_channels + tile->channel + channel) * conv->in_plane;
}

/* Columns of a tile: those of a channel, tap and image. */
static float *columns_at(const jw_conv *conv, const jw_tile *tile, float *columns, jw_index channel,
                         jw_index tap, jw_index image) {
    return columns + (channel * conv->taps + tap) * tile->columns +
           image * tile->rows * conv->x.out;
}

/* --- with a frame: the part of a plane that a tile reads, and the padding around it ------------- */

/* Floats of the largest frame. Planes with larger ones have rows long enough to be copied from where
 * they are, and those that one tap reads are read but once. */
#if JW_SMALL_MEMORY
#define MOST_FRAMED 112
#else
#define MOST_FRAMED 4096
#endif

jw_frame jw_frame_of(const jw_conv *conv, jw_index row, jw_index rows) {
    const jw_axis *y = &conv->y, *x = &conv->x;
    const jw_index above = row * y->stride - y->pad; /* row of the plane at the frame's first */
    jw_frame f;
    f.height = (rows - 1) * y->stride + jw_extent(y);
    f.width = (x->out - 1) * x->stride + jw_extent(x);
    f.top = jw_min(jw_max(-above, 0), f.height);
    f.bottom = jw_max(jw_min(y->in - above, f.height), f.top);
    f.left = jw_min(jw_max(x->pad, 0), f.width);
    f.right = jw_max(jw_min(x->in + x->pad, f.width), f.left);
    f.shift = above * x->in - x->pad;
    return f;
}

jw_index jw_frame_floats(const jw_conv *conv, jw_index rows) {
    const jw_frame f = jw_frame_of(conv, 0, rows);
    const jw_index floats = f.height * f.width;
    return conv->taps > 1 && floats <= MOST_FRAMED ? jw_padded(floats) : 0;
}

/* Copy what is inside the plane; the rest of the frame is padding. */
static void load_frame(const jw_conv *conv, const jw_frame *f, const float *plane, float *framed) {
    jw_copy_rows(framed + f->top * f->width + f->left, f->width,
                 plane + (f->shift + f->top * conv->x.in + f->left), conv->x.in, f->bottom - f->top,
                 f->right - f->left);
}

static void store_frame(const jw_conv *conv, const jw_frame *f, const float *framed, float *plane) {
    jw_copy_rows(plane + (f->shift + f->top * conv->x.in + f->left), conv->x.in,
                 framed + f->top * f->width + f->left, f->width, f->bottom - f->top,
                 f->right - f->left);
}

/* How taps read a frame, in floats: distances of neighbouring taps and rows in it, and of the columns of
 * neighbouring taps. */
typedef struct {
    jw_index taps_y, taps_x, down, across, row, columns;
} taps;

/* Copy the rows that each tap reads. Called with constants where rows are short. */
static inline void unfold_frame(const taps *t, const float *restrict framed,
                                float *restrict columns, jw_index rows, jw_index width,
                                jw_index chunk) {
    for (jw_index ky = 0; ky < t->taps_y; ky++, framed += t->down) {
        const float *from = framed;
        for (jw_index kx = 0; kx < t->taps_x; kx++, from += t->across, columns += t->columns) {
            jw_copy_chunks(columns, width, from, t->row, rows, width, chunk);
        }
    }
}

/* Functions of their own, so that the loops of each have the registers to themselves. */
#define DEFINE_UNFOLD(NAME, ROWS, WIDTH, CHUNK)                                                    \
    static JW_APART void NAME(const taps *t, const float *restrict framed,                         \
                              float *restrict columns, jw_index rows, jw_index width) {            \
        (void)rows;                                                                                \
        (void)width;                                                                               \
        unfold_frame(t, framed, columns, ROWS, WIDTH, CHUNK);                                      \
    }
DEFINE_UNFOLD(unfold_ones, rows, width, 1)
DEFINE_UNFOLD(unfold_2_by_2, 2, 2, 2)
DEFINE_UNFOLD(unfold_twos, rows, width, 2)
DEFINE_UNFOLD(unfold_4_by_4, 4, 4, 4)
DEFINE_UNFOLD(unfold_fours, rows, width, 4)
#if JW_SMALL_MEMORY
DEFINE_UNFOLD(unfold_8, rows, 8, 4)
DEFINE_UNFOLD(unfold_16, rows, 16, 4)
#else
DEFINE_UNFOLD(unfold_8, rows, 8, 8)
DEFINE_UNFOLD(unfold_eights, rows, width, 8)
DEFINE_UNFOLD(unfold_16, rows, 16, 16)
DEFINE_UNFOLD(unfold_sixteens, rows, width, 16)
#endif

typedef void unfolds(const taps *t, const float *restrict framed, float *restrict columns,
                     jw_index rows, jw_index width);

#if JW_SMALL_MEMORY
/* A part of a weight has few output channels that share the work of unfolding, much of which is the
 * arithmetic of distances. The same for windows of 3 x 3 without gaps over one image: */
#define DEFINE_UNFOLD_3_BY_3(NAME, ROWS, WIDTH, CHUNK)                                             \
    static JW_APART void NAME(const taps *t, const float *restrict framed,                         \
                              float *restrict columns, jw_index rows, jw_index width) {            \
        const taps known = {3, 3, (WIDTH) + 2, 1, (WIDTH) + 2, (ROWS) * (WIDTH)};                  \
        (void)t;                                                                                   \
        (void)rows;                                                                                \
        (void)width;                                                                               \
        unfold_frame(&known, framed, columns, ROWS, WIDTH, CHUNK);                                 \
    }
DEFINE_UNFOLD_3_BY_3(unfold_3_by_3_for_4_by_4, 4, 4, 4)
DEFINE_UNFOLD_3_BY_3(unfold_3_by_3_for_4_by_8, 4, 8, 4)
DEFINE_UNFOLD_3_BY_3(unfold_3_by_3_for_2_by_16, 2, 16, 4)

/* NULL if there is none for these taps and positions. */
static unfolds *unfolds_of_3_by_3(const taps *t, jw_index rows, jw_index width) {
    if (t->taps_y != 3 || t->taps_x != 3 || t->across != 1 || t->down != width + 2 ||
        t->row != width + 2 || t->columns != rows * width) {
        return NULL;
    }
    switch (width) {
    case 4:
        return rows == 4 ? unfold_3_by_3_for_4_by_4 : NULL;
    case 8:
        return rows == 4 ? unfold_3_by_3_for_4_by_8 : NULL;
    case 16:
        return rows == 2 ? unfold_3_by_3_for_2_by_16 : NULL;
    default:
        return NULL;
    }
}
#endif

static unfolds *unfolds_of(const taps *t, jw_index rows, jw_index width) {
#if JW_SMALL_MEMORY
    unfolds *const known = unfolds_of_3_by_3(t, rows, width);
    if (known) {
        return known;
    }
#else
    (void)t;
#endif
    if (rows == 2 && width == 2) {
        return unfold_2_by_2;
    }
    if (rows == 4 && width == 4) {
        return unfold_4_by_4;
    }
#if JW_SMALL_MEMORY
    if (width == 8 || width == 16) {
        return width == 8 ? unfold_8 : unfold_16;
    }
#else
    if (width >= 16) {
        return width == 16 ? unfold_16 : unfold_sixteens;
    }
    if (width >= 8) {
        return width == 8 ? unfold_8 : unfold_eights;
    }
#endif
    return width >= 4 ? unfold_fours : width >= 2 ? unfold_twos : unfold_ones;
}

/* The same where neighbouring positions read elements that are not neighbours. */
static void unfold_apart(const taps *t, const float *restrict framed, float *restrict columns,
                         jw_index rows, jw_index width, jw_index stride) {
    for (jw_index ky = 0; ky < t->taps_y; ky++, framed += t->down) {
        const float *tap = framed;
        for (jw_index kx = 0; kx < t->taps_x; kx++, tap += t->across, columns += t->columns) {
            for (jw_index r = 0; r < rows; r++) {
                for (jw_index x = 0; x < width; x++) {
                    columns[r * width + x] = tap[r * t->row + x * stride];
                }
            }
        }
    }
}

#if JW_SMALL_MEMORY
/* Whether a tile has whole planes of 2 x 2 of one image, with one row and column of padding around
 * each, under windows of 3 x 3 without gaps. */
static int is_padded_2_by_2(const jw_conv *conv, const jw_tile *tile) {
    const jw_axis *y = &conv->y, *x = &conv->x;
    return tile->columns == 4 && y->in == 2 && x->in == 2 && y->out == 2 && x->out == 2 &&
           y->kernel == 3 && x->kernel == 3 && y->pad == 1 && x->pad == 1 && y->stride == 1 &&
           x->stride == 1 && y->dilation == 1 && x->dilation == 1;
}

static inline void put(float *to, float a, float b, float c, float d) {
    to[0] = a, to[1] = b, to[2] = c, to[3] = d;
}

/* Each tap reads some of the four elements of such a plane. */
static void unfold_padded_2_by_2(const float *restrict plane, float *restrict columns,
                                 jw_index channels) {
    for (jw_index n = 0; n < channels; n++, plane += 4, columns += 36) {
        const float a = plane[0], b = plane[1], c = plane[2], d = plane[3];
        put(columns, 0, 0, 0, a);
        put(columns + 4, 0, 0, a, b);
        put(columns + 8, 0, 0, b, 0);
        put(columns + 12, 0, a, 0, c);
        put(columns + 16, a, b, c, d);
        put(columns + 20, b, 0, d, 0);
        put(columns + 24, 0, c, 0, 0);
        put(columns + 28, c, d, 0, 0);
        put(columns + 32, d, 0, 0, 0);
    }
}
#endif

static void unfold_frames(const jw_conv *conv, const jw_tile *tile, const float *input,
                          float *columns, float *framed) {
#if JW_SMALL_MEMORY
    if (is_padded_2_by_2(conv, tile)) {
        unfold_padded_2_by_2(input + jw_input_plane(conv, tile, 0, 0), columns, tile->channels);
        return;
    }
#endif
    const jw_frame f = jw_frame_of(conv, tile->row, tile->rows);
    const jw_index width = conv->x.out, stride = conv->x.stride;
    const taps t = {
        conv->y.kernel,   conv->x.kernel,           conv->y.dilation * f.width,
        conv->x.dilation, conv->y.stride * f.width, tile->columns,
    };
    unfolds *const unfold = unfolds_of(&t, tile->rows, width);
    jw_fill(framed, 0.0f, f.height * f.width);
    for (jw_index c = 0; c < tile->channels; c++) {
        for (jw_index n = 0; n < tile->images; n++) {
            float *to = columns_at(conv, tile, columns, c, 0, n);
            load_frame(conv, &f, input + jw_input_plane(conv, tile, c, n), framed);
            if (stride == 1) {
                unfold(&t, framed, to, tile->rows, width);
            } else {
                unfold_apart(&t, framed, to, tile->rows, width, stride);
            }
        }
    }
}

/* Called with constants where rows are short. */
static inline void add_rows(float *restrict to, jw_index to_leading, jw_index stride,
                            const float *restrict from, jw_index rows, jw_index width) {
    for (jw_index r = 0; r < rows; r++, to += to_leading, from += width) {
        for (jw_index x = 0; x < width; x++) {
            to[x * stride] += from[x];
        }
    }
}

static void fold_frames(const jw_conv *conv, const jw_tile *tile, float *restrict columns,
                        float *input_gradient, float *restrict framed) {
    const jw_frame f = jw_frame_of(conv, tile->row, tile->rows);
    const jw_index width = conv->x.out, stride = conv->x.stride;
    const jw_index leading = conv->y.stride * f.width;
    jw_fill(framed, 0.0f, f.height * f.width); /* receives what would be added to padding */
    for (jw_index c = 0; c < tile->channels; c++) {
        for (jw_index n = 0; n < tile->images; n++) {
            float *plane = input_gradient + jw_input_plane(conv, tile, c, n);
            load_frame(conv, &f, plane, framed);
            for (jw_index tap = 0; tap < conv->taps; tap++) {
                float *to = framed + tap / conv->x.kernel * conv->y.dilation * f.width +
                            tap % conv->x.kernel * conv->x.dilation;
                const float *from = columns_at(conv, tile, columns, c, tap, n);
                if (stride > 1 || JW_SMALL_MEMORY) {
                    add_rows(to, leading, stride, from, tile->rows, width);
                } else if (width == 4) {
                    add_rows(to, leading, 1, from, tile->rows, 4);
                } else if (width == 8) {
                    add_rows(to, leading, 1, from, tile->rows, 8);
                } else {
                    add_rows(to, leading, 1, from, tile->rows, width);
                }
            }
            store_frame(conv, &f, framed, plane);
        }
    }
}

/* --- without ------------------------------------------------------------------------------------ */

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

static void unfold_spans(const jw_conv *conv, const jw_tile *tile, const float *input,
                         float *columns) {
    const jw_index width = conv->x.out, rows = tile->rows;
    const int shifted_plane = is_shifted_plane(conv);

    for (jw_index tap = 0; tap < conv->taps; tap++) {
        const span s = span_of(conv, tile, tap / conv->x.kernel, tap % conv->x.kernel);
        for (jw_index c = 0; c < tile->channels; c++) {
            for (jw_index n = 0; n < tile->images; n++) {
                const float *plane = input + jw_input_plane(conv, tile, c, n);
                float *to = columns_at(conv, tile, columns, c, tap, n);
                if (is_empty(&s)) {
                    jw_fill(to, 0.0f, rows * width);
                    continue;
                }
                jw_fill(to, 0.0f, s.top * width);
                if (shifted_plane) {
                    unfold_shifted(&s, width, plane, to);
                } else {
                    unfold_rows(conv, &s, plane, to);
                }
                jw_fill(to + s.bottom * width, 0.0f, (rows - s.bottom) * width);
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

static void fold_spans(const jw_conv *conv, const jw_tile *tile, float *columns,
                       float *input_gradient) {
    const jw_index width = conv->x.out;
    const int shifted_plane = is_shifted_plane(conv);

    for (jw_index tap = 0; tap < conv->taps; tap++) {
        const span s = span_of(conv, tile, tap / conv->x.kernel, tap % conv->x.kernel);
        for (jw_index c = 0; c < tile->channels && !is_empty(&s); c++) {
            for (jw_index n = 0; n < tile->images; n++) {
                float *plane = input_gradient + jw_input_plane(conv, tile, c, n);
                float *from = columns_at(conv, tile, columns, c, tap, n);
                if (shifted_plane) {
                    fold_shifted(&s, width, from, plane);
                } else {
                    fold_rows(conv, &s, from, plane);
                }
            }
        }
    }
}

void jw_unfold(const jw_conv *conv, const jw_tile *tile, const float *input, float *columns,
               float *framed) {
    if (framed) {
        unfold_frames(conv, tile, input, columns, framed);
    } else {
        unfold_spans(conv, tile, input, columns);
    }
}

void jw_fold(const jw_conv *conv, const jw_tile *tile, float *columns, float *input_gradient,
             float *framed) {
    if (framed) {
        fold_frames(conv, tile, columns, input_gradient, framed);
    } else {
        fold_spans(conv, tile, columns, input_gradient);
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
