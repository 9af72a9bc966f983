/* The weight gradient of a convolution with few output channels. Unfolding the input would take longer
 * than the products: here it is laid out once, not once for each tap. The input of LANES channels lies
 * side by side, element by element, with the padding around it, so that what neighbouring taps read are
 * neighbouring vectors. Sums have the order of the product with the unfolded input. */
#include "conv2d.h"

#define LANES 16
#define TAPS 3 /* neighbouring taps whose sums are in registers together */
#define WIDTH (TAPS * LANES)

/* Most output channels. With more of them, the unfolded input is used often enough. */
#define MOST_CHANNELS 32

/* Most positions of a tile: those that the matrix product adds up before it adds to what is there. */
#define MOST_POSITIONS 256

/* Output channels whose sums are in registers together. */
#if defined(__AVX512F__)
#define ROWS 4
#else
#define ROWS 2
#endif

int jw_correlates(const jw_conv *conv, jw_index positions) {
    return conv->taps > 1 && conv->x.dilation == 1 && conv->group_in % LANES == 0 &&
           conv->group_out <= MOST_CHANNELS && positions <= MOST_POSITIONS;
}

/* Floats of an image's lanes; a group of taps reads up to TAPS - 1 positions beyond the last. */
static jw_index image_floats(const jw_frame *f) {
    return f->height * f->width * LANES;
}

jw_index jw_correlation_floats(const jw_conv *conv, jw_index images, jw_index rows) {
    const jw_frame f = jw_frame_of(conv, 0, rows);
    return jw_padded(images * image_floats(&f) + WIDTH);
}

/* lanes[position][lane] = the tile's input at a position of the frame, in channel `channel` + lane. */
static void lay_out(const jw_conv *conv, const jw_tile *tile, const jw_frame *f, const float *input,
                    jw_index channel, float *restrict lanes) {
    for (jw_index n = 0; n < tile->images; n++, lanes += image_floats(f)) {
        const float *plane = input + jw_input_plane(conv, tile, channel, n);
        for (jw_index y = f->top; y < f->bottom; y++) {
            for (jw_index x = f->left; x < f->right; x++) {
                float *restrict to = lanes + (y * f->width + x) * LANES;
                const float *restrict from = plane + (f->shift + y * conv->x.in + x);
                for (jw_index l = 0; l < LANES; l++) {
                    to[l] = from[l * conv->in_plane];
                }
            }
        }
    }
}

/* Where the products of a group of taps lie, in floats. */
typedef struct {
    jw_index images, rows, width;
    jw_index image_step, row_step, step;
} positions;

/* sums[i][j] = sum over positions of gradients[i][position] * lanes[at the position + j] */
#define DEFINE_CORRELATE(NAME, COUNT)                                                              \
    static JW_APART void NAME(float sums[ROWS][WIDTH], const float *const gradients[ROWS],         \
                              const positions *at, const float *lanes) {                           \
        float added[COUNT][WIDTH] = {{0.0f}};                                                      \
        const float *restrict gradient[COUNT];                                                     \
        for (int i = 0; i < (COUNT); i++) {                                                        \
            gradient[i] = gradients[i];                                                            \
        }                                                                                          \
        jw_index p = 0;                                                                            \
        for (jw_index n = 0; n < at->images; n++) {                                                \
            for (jw_index r = 0; r < at->rows; r++) {                                              \
                const float *restrict from = lanes + n * at->image_step + r * at->row_step;        \
                for (jw_index x = 0; x < at->width; x++, p++, from += at->step) {                  \
                    for (int i = 0; i < (COUNT); i++) {                                            \
                        for (int j = 0; j < WIDTH; j++) {                                          \
                            added[i][j] = JW_FMA(gradient[i][p], from[j], added[i][j]);            \
                        }                                                                          \
                    }                                                                              \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        memcpy(sums, added, sizeof added);                                                         \
    }
DEFINE_CORRELATE(correlate_rows, ROWS)
DEFINE_CORRELATE(correlate_row, 1)

/* Write the sums of `taps` taps, or add them to what is there. */
static void store(const jw_conv *conv, const float *restrict sums, jw_index taps, int adds,
                  float *restrict weight_gradient) {
    for (jw_index l = 0; l < LANES; l++, weight_gradient += conv->taps) {
        for (jw_index t = 0; t < taps; t++) {
            const float sum = sums[t * LANES + l];
            weight_gradient[t] = adds ? weight_gradient[t] + sum : sum;
        }
    }
}

void jw_correlate(const jw_conv *conv, const jw_tile *tile, const float *input, jw_index channels,
                  jw_matrix output_gradient, int adds, float *weight_gradient, float *workspace) {
    const jw_frame f = jw_frame_of(conv, tile->row, tile->rows);
    const positions at = {
        tile->images,
        tile->rows,
        conv->x.out,
        image_floats(&f),
        conv->y.stride * f.width * LANES,
        conv->x.stride * LANES,
    };
    jw_fill(workspace, 0.0f, tile->images * image_floats(&f) + WIDTH);
    for (jw_index c = 0; c < tile->channels; c += LANES) {
        lay_out(conv, tile, &f, input, c, workspace);
        for (jw_index o = 0; o < channels; o += ROWS) {
            const jw_index count = jw_min(channels - o, ROWS);
            const float *gradients[ROWS];
            for (jw_index i = 0; i < ROWS; i++) { /* past the last: repeat it */
                gradients[i] =
                    output_gradient.data + jw_min(o + i, channels - 1) * output_gradient.leading;
            }
            for (jw_index ky = 0; ky < conv->y.kernel; ky++) {
                for (jw_index kx = 0; kx < conv->x.kernel; kx += TAPS) {
                    float sums[ROWS][WIDTH];
                    const float *read = workspace + (ky * conv->y.dilation * f.width + kx) * LANES;
                    if (count > 1) {
                        correlate_rows(sums, gradients, &at, read);
                    } else {
                        correlate_row(sums, gradients, &at, read);
                    }
                    for (jw_index i = 0; i < count; i++) {
                        store(conv, sums[i], jw_min(conv->x.kernel - kx, TAPS), adds,
                              weight_gradient + (o + i) * conv->filter + c * conv->taps +
                                  ky * conv->x.kernel + kx);
                    }
                }
            }
        }
    }
}
