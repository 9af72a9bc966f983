/* Max and average pooling over windows of a plane, average pooling over whole planes, and upsampling
 * of planes. */
#include "kernels.h"

typedef struct {
    jw_index planes;
    jw_axis y, x;
} shape;

static shape shape_of(const int32_t *a) {
    shape s;
    s.planes = (jw_index)a[0] * a[1];
    s.y = jw_axis_of(a[2], a[4], a[6], a[8], a[9], 1);
    s.x = jw_axis_of(a[3], a[5], a[7], a[10], a[11], 1);
    return s;
}

static int is_inside(const jw_axis *axis, jw_index source) {
    return source >= 0 && source < axis->in;
}

/* True if x exceeds the maximum so far; NaNs win, so that they propagate. */
static inline int is_greater(float x, float best) {
    return x > best || x != x;
}

void jw_max_pool2d_forward(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    const float *input = call->reads[0];
    float *restrict best = call->writes[0];

    for (jw_index p = 0; p < s.planes; p++, input += s.y.in * s.x.in) {
        for (jw_index y = 0; y < s.y.out; y++, best += s.x.out) {
            jw_fill(best, -HUGE_VALF, s.x.out);
            for (jw_index ky = 0; ky < s.y.kernel; ky++) {
                const jw_index row = jw_source(&s.y, y, ky);
                if (!is_inside(&s.y, row)) {
                    continue;
                }
                for (jw_index kx = 0; kx < s.x.kernel; kx++) {
                    const float *source = input + row * s.x.in;
                    const jw_index shift = jw_source(&s.x, 0, kx), last = jw_last(&s.x, kx);
                    for (jw_index x = jw_first(&s.x, kx); x < last; x++) {
                        const float value = source[x * s.x.stride + shift];
                        best[x] = is_greater(value, best[x]) ? value : best[x];
                    }
                }
            }
        }
    }
}

/* Maxima of the columns of a row of windows or of the windows, and where in its window each is: rows
 * before it, times `pitch`, plus columns before it; -1 if all of a window is padding. */
typedef struct {
    jw_index pitch;
    float *best;
    int32_t *where;
} maxima;

/* Maxima of the columns of windows `y`, of which each is one of the window's rows; returns 0 if all of
 * them are padding. The first of equal numbers counts, and the last NaN. */
static int find_columns(const shape *s, jw_index y, const float *input, maxima columns) {
    float *restrict best = columns.best;
    int32_t *restrict where = columns.where;
    int found = 0;
    for (jw_index ky = 0; ky < s->y.kernel; ky++) {
        const jw_index row = jw_source(&s->y, y, ky);
        if (!is_inside(&s->y, row)) {
            continue;
        }
        const int32_t at = (int32_t)(ky * columns.pitch);
        const float *restrict source = input + row * s->x.in;
        for (jw_index x = 0; !found && x < s->x.in; x++) {
            best[x] = source[x];
            where[x] = at;
        }
        for (jw_index x = 0; found && x < s->x.in; x++) {
            const int greater = (source[x] > best[x]) | (source[x] != source[x]);
            best[x] = greater ? source[x] : best[x];
            where[x] = greater ? at : where[x];
        }
        found = 1;
    }
    return found;
}

/* Maxima of windows from those of their columns. */
static void find_windows(const shape *s, maxima columns, maxima windows) {
    float *restrict best = windows.best;
    int32_t *restrict where = windows.where;
    for (jw_index x = 0; x < s->x.out; x++) {
        best[x] = -HUGE_VALF;
        where[x] = -1;
    }
    for (jw_index kx = 0; kx < s->x.kernel; kx++) {
        const jw_index shift = jw_source(&s->x, 0, kx), last = jw_last(&s->x, kx);
        for (jw_index x = jw_first(&s->x, kx); x < last; x++) {
            const float value = columns.best[x * s->x.stride + shift];
            const int32_t at = columns.where[x * s->x.stride + shift] + (int32_t)kx;
            const int is_nan = value != value, had_number = best[x] == best[x];
            const int is_first = (value == best[x]) & ((at < where[x]) | (where[x] < 0));
            const int greater = (is_nan & (had_number | (at > where[x]))) |
                                (had_number & ((value > best[x]) | is_first));
            best[x] = greater ? value : best[x];
            where[x] = greater ? at : where[x];
        }
    }
}

/* Bytes for the maxima of a row of windows and of their columns. */
static size_t maxima_bytes(const shape *s) {
    return (size_t)(s->x.out + s->x.in) * (sizeof(float) + sizeof(int32_t));
}

size_t jw_max_pool2d_input_gradient_workspace(const int32_t *attributes) {
    const shape s = shape_of(attributes);
    return maxima_bytes(&s);
}

/* Element of a plane at the first place of the first window in row `y`; it may be padding. */
static jw_index corner(const shape *s, jw_index y) {
    return jw_source(&s->y, y, 0) * s->x.in + jw_source(&s->x, 0, 0);
}

/* Recomputes the maxima of a row of windows and their positions, then adds the gradients there. */
void jw_max_pool2d_input_gradient(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    const jw_index in_plane = s.y.in * s.x.in;
    const float *input = call->reads[0], *output_gradient = call->reads[1];
    float *input_gradient = call->writes[0], *best = call->workspace;
    int32_t *where = (int32_t *)(void *)(best + s.x.in + s.x.out);
    const maxima columns = {s.x.in, best, where};
    const maxima windows = {s.x.in, best + s.x.in, where + s.x.in};

    jw_fill(input_gradient, 0.0f, s.planes * in_plane);
    for (jw_index p = 0; p < s.planes; p++, input += in_plane, input_gradient += in_plane) {
        for (jw_index y = 0; y < s.y.out; y++, output_gradient += s.x.out) {
            if (!find_columns(&s, y, input, columns)) {
                continue;
            }
            find_windows(&s, columns, windows);
            const jw_index first = corner(&s, y);
            for (jw_index x = 0; x < s.x.out; x++) {
                if (windows.where[x] >= 0) {
                    input_gradient[first + x * s.x.stride + windows.where[x]] += output_gradient[x];
                }
            }
        }
    }
}

size_t jw_max_pool2d_places_forward_workspace(const int32_t *attributes) {
    const shape s = shape_of(attributes);
    return maxima_bytes(&s);
}

/* A place is a byte: the number of the maximum in its window, row by row; 255 if all is padding. */
void jw_max_pool2d_places_forward(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    const jw_index outputs = s.planes * s.y.out * s.x.out;
    const float *input = call->reads[0];
    float *output = call->writes[0], *best = call->workspace;
    uint8_t *places = call->writes[1];
    int32_t *where = (int32_t *)(void *)(best + s.x.in + s.x.out);
    const maxima columns = {s.x.kernel, best, where};

    memset(places + outputs, 0, (size_t)(-outputs & 3)); /* whole words */
    for (jw_index p = 0; p < s.planes; p++, input += s.y.in * s.x.in) {
        for (jw_index y = 0; y < s.y.out; y++, output += s.x.out, places += s.x.out) {
            const maxima windows = {s.x.kernel, output, where + s.x.in};
            if (!find_columns(&s, y, input, columns)) {
                jw_fill(output, -HUGE_VALF, s.x.out);
                memset(places, 255, (size_t)s.x.out);
                continue;
            }
            find_windows(&s, columns, windows);
            for (jw_index x = 0; x < s.x.out; x++) {
                places[x] = (uint8_t)windows.where[x];
            }
        }
    }
}

size_t jw_max_pool2d_places_input_gradient_workspace(const int32_t *attributes) {
    return (size_t)attributes[4] * (size_t)attributes[5] * sizeof(int32_t);
}

/* Whatever the places are, nothing outside of a plane is written. */
void jw_max_pool2d_places_input_gradient(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    const jw_index in_plane = s.y.in * s.x.in, taps = s.y.kernel * s.x.kernel;
    const uint8_t *places = call->reads[0];
    const float *output_gradient = call->reads[1];
    float *input_gradient = call->writes[0];
    int32_t *distance = call->workspace; /* of a place, from the window's first element */

    for (jw_index place = 0; place < taps; place++) {
        distance[place] = (int32_t)(place / s.x.kernel * s.x.in + place % s.x.kernel);
    }
    jw_fill(input_gradient, 0.0f, s.planes * in_plane);
    for (jw_index p = 0; p < s.planes; p++, input_gradient += in_plane) {
        for (jw_index y = 0; y < s.y.out; y++, output_gradient += s.x.out, places += s.x.out) {
            const jw_index first = corner(&s, y);
            for (jw_index x = 0; x < s.x.out; x++) {
                if (places[x] >= taps) {
                    continue;
                }
                const jw_index at = first + x * s.x.stride + distance[places[x]];
                if ((size_t)at < (size_t)in_plane) {
                    input_gradient[at] += output_gradient[x];
                }
            }
        }
    }
}

/* Padding counts as zeros: the divisor is the size of the whole window. */
void jw_average_pool2d_forward(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    const float share = 1.0f / (float)(s.y.kernel * s.x.kernel);
    const float *input = call->reads[0];
    float *restrict sum = call->writes[0];

    for (jw_index p = 0; p < s.planes; p++, input += s.y.in * s.x.in) {
        for (jw_index y = 0; y < s.y.out; y++, sum += s.x.out) {
            jw_fill(sum, 0.0f, s.x.out);
            for (jw_index ky = 0; ky < s.y.kernel; ky++) {
                const jw_index row = jw_source(&s.y, y, ky);
                if (!is_inside(&s.y, row)) {
                    continue;
                }
                for (jw_index kx = 0; kx < s.x.kernel; kx++) {
                    const float *source = input + row * s.x.in;
                    const jw_index shift = jw_source(&s.x, 0, kx), last = jw_last(&s.x, kx);
                    for (jw_index x = jw_first(&s.x, kx); x < last; x++) {
                        sum[x] += source[x * s.x.stride + shift];
                    }
                }
            }
            for (jw_index x = 0; x < s.x.out; x++) {
                sum[x] *= share;
            }
        }
    }
}

void jw_average_pool2d_input_gradient(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    const jw_index in_plane = s.y.in * s.x.in;
    const float share = 1.0f / (float)(s.y.kernel * s.x.kernel);
    const float *restrict output_gradient = call->reads[0];
    float *restrict input_gradient = call->writes[0];

    jw_fill(input_gradient, 0.0f, s.planes * in_plane);
    for (jw_index p = 0; p < s.planes; p++, input_gradient += in_plane) {
        for (jw_index y = 0; y < s.y.out; y++, output_gradient += s.x.out) {
            for (jw_index ky = 0; ky < s.y.kernel; ky++) {
                const jw_index row = jw_source(&s.y, y, ky);
                if (!is_inside(&s.y, row)) {
                    continue;
                }
                for (jw_index kx = 0; kx < s.x.kernel; kx++) {
                    float *target = input_gradient + row * s.x.in;
                    const jw_index shift = jw_source(&s.x, 0, kx), last = jw_last(&s.x, kx);
                    JW_INDEPENDENT
                    for (jw_index x = jw_first(&s.x, kx); x < last; x++) {
                        target[x * s.x.stride + shift] += share * output_gradient[x];
                    }
                }
            }
        }
    }
}

void jw_global_average_pool_forward(const jw_call *call) {
    const jw_index planes = (jw_index)call->attributes[0] * call->attributes[1];
    const jw_index plane = call->attributes[2];
    const float *input = call->reads[0];
    float *output = call->writes[0];
    for (jw_index p = 0; p < planes; p++) {
        output[p] = jw_sum(input + p * plane, plane) / (float)plane;
    }
}

void jw_global_average_pool_input_gradient(const jw_call *call) {
    const jw_index planes = (jw_index)call->attributes[0] * call->attributes[1];
    const jw_index plane = call->attributes[2];
    const float *output_gradient = call->reads[0];
    float *input_gradient = call->writes[0];
    for (jw_index p = 0; p < planes; p++) {
        jw_fill(input_gradient + p * plane, output_gradient[p] / (float)plane, plane);
    }
}

/* Every element becomes a rectangle of equal ones: the nearest element of the input. */
void jw_upsample_nearest2d_forward(const jw_call *call) {
    const int32_t *a = call->attributes;
    const jw_index rows = (jw_index)a[0] * a[1] * a[2], width = a[3];
    const jw_index factor_y = a[4], factor_x = a[5], out_width = width * factor_x;
    const float *restrict input = call->reads[0];
    float *restrict output = call->writes[0];

    for (jw_index r = 0; r < rows; r++, input += width, output += factor_y * out_width) {
        for (jw_index k = 0; k < factor_x; k++) {
            for (jw_index x = 0; x < width; x++) {
                output[x * factor_x + k] = input[x];
            }
        }
        for (jw_index y = 1; y < factor_y; y++) {
            memcpy(output + y * out_width, output, (size_t)out_width * sizeof(float));
        }
    }
}

void jw_upsample_nearest2d_input_gradient(const jw_call *call) {
    const int32_t *a = call->attributes;
    const jw_index rows = (jw_index)a[0] * a[1] * a[2], width = a[3];
    const jw_index factor_y = a[4], factor_x = a[5];
    const float *restrict output_gradient = call->reads[0];
    float *restrict sum = call->writes[0];

    for (jw_index r = 0; r < rows; r++, sum += width) {
        jw_fill(sum, 0.0f, width);
        for (jw_index y = 0; y < factor_y; y++, output_gradient += width * factor_x) {
            for (jw_index k = 0; k < factor_x; k++) {
                for (jw_index x = 0; x < width; x++) {
                    sum[x] += output_gradient[x * factor_x + k];
                }
            }
        }
    }
}
