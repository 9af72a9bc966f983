/* Sums, products and reductions with an operand that is repeated along axes.
 *
 * The large tensor is [outer, middle, between, inner] and the small one [middle, inner]: it is
 * repeated along `outer` and `between`. */
#include "kernels.h"

typedef struct {
    jw_index outer, middle, between, inner;
} shape;

static shape shape_of(const int32_t *attributes) {
    const shape s = {attributes[0], attributes[1], attributes[2], attributes[3]};
    return s;
}

/* The elements of the large tensor as rows in which the small one is a row, or a single number if
 * `inner` is 1: `rows` of `length` for each of the `outer` * `middle` parts. */
static jw_index rows_of(const shape *s) {
    return s->inner == 1 ? 1 : s->between;
}

static jw_index length_of(const shape *s) {
    return s->inner == 1 ? s->between : s->inner;
}

void jw_broadcast_add_forward(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    const jw_index rows = rows_of(&s), length = length_of(&s);
    const float *x = call->reads[0], *addend = call->reads[1];
    float *y = call->writes[0];
    for (jw_index part = 0; part < s.outer * s.middle; part++) {
        const float *small = addend + part % s.middle * s.inner;
        for (jw_index r = 0; r < rows; r++, x += length, y += length) {
            if (s.inner == 1) {
                const float term = *small;
                JW_INDEPENDENT
                for (jw_index i = 0; i < length; i++) {
                    y[i] = x[i] + term;
                }
            } else {
                JW_INDEPENDENT
                for (jw_index i = 0; i < length; i++) {
                    y[i] = x[i] + small[i];
                }
            }
        }
    }
}

/* The output, and the input gradient, which is the same map of the output gradient. */
void jw_broadcast_multiply(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    const jw_index rows = rows_of(&s), length = length_of(&s);
    const float *x = call->reads[0], *factors = call->reads[1];
    float *y = call->writes[0];
    for (jw_index part = 0; part < s.outer * s.middle; part++) {
        const float *small = factors + part % s.middle * s.inner;
        for (jw_index r = 0; r < rows; r++, x += length, y += length) {
            if (s.inner == 1) {
                const float factor = *small;
                JW_INDEPENDENT
                for (jw_index i = 0; i < length; i++) {
                    y[i] = factor * x[i];
                }
            } else {
                JW_INDEPENDENT
                for (jw_index i = 0; i < length; i++) {
                    y[i] = x[i] * small[i];
                }
            }
        }
    }
}

/* Elements where the small tensor is not 0, and 0 elsewhere, also of infinities and NaNs; the input
 * gradient is the same map of the output gradient. */
void jw_broadcast_select(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    const jw_index rows = rows_of(&s), length = length_of(&s);
    const float *x = call->reads[0], *shown = call->reads[1];
    float *y = call->writes[0];
    for (jw_index part = 0; part < s.outer * s.middle; part++) {
        const float *small = shown + part % s.middle * s.inner;
        const jw_index step = s.inner == 1 ? 0 : 1;
        for (jw_index r = 0; r < rows; r++, x += length, y += length) {
            JW_INDEPENDENT
            for (jw_index i = 0; i < length; i++) {
                y[i] = small[step * i] == 0.0f ? 0.0f : x[i];
            }
        }
    }
}

/* Sums of the large tensor, or of its products with `other` if that is not NULL, times `share`. */
static void sum(const shape *s, const float *large, const float *other, float share, float *small) {
    for (jw_index m = 0; m < s->middle; m++, small += s->inner) {
        float lanes[JW_LANES];
        jw_clear_lanes(lanes);
        if (s->inner > 1) {
            jw_fill(small, 0.0f, s->inner);
        }
        for (jw_index o = 0; o < s->outer; o++) {
            const jw_index first = (o * s->middle + m) * s->between * s->inner;
            const float *x = large + first, *z = other == NULL ? NULL : other + first;
            if (s->inner == 1) {
                if (z == NULL) {
                    jw_add_sum(lanes, x, s->between);
                } else {
                    JW_ADD_PRODUCTS(lanes, s->between, x[i], z[i]);
                }
                continue;
            }
            for (jw_index b = 0; b < s->between; b++, x += s->inner) {
                if (z == NULL) {
                    JW_INDEPENDENT
                    for (jw_index i = 0; i < s->inner; i++) {
                        small[i] += x[i];
                    }
                } else {
                    JW_INDEPENDENT
                    for (jw_index i = 0; i < s->inner; i++) {
                        small[i] = JW_FMA(x[i], z[i], small[i]);
                    }
                    z += s->inner;
                }
            }
        }
        if (s->inner == 1) {
            *small = jw_fold_lanes(lanes);
        }
        if (share != 1.0f) {
            for (jw_index i = 0; i < s->inner; i++) {
                small[i] *= share;
            }
        }
    }
}

void jw_broadcast_add_addend_gradient(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    sum(&s, call->reads[0], NULL, 1.0f, call->writes[0]);
}

void jw_broadcast_multiply_factor_gradient(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    sum(&s, call->reads[0], call->reads[1], 1.0f, call->writes[0]);
}

void jw_reduce_forward(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    sum(&s, call->reads[0], NULL, call->scalars[0], call->writes[0]);
}

void jw_reduce_input_gradient(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    const jw_index rows = rows_of(&s), length = length_of(&s);
    const float share = call->scalars[0];
    const float *restrict output_gradient = call->reads[0];
    float *restrict dx = call->writes[0];
    for (jw_index part = 0; part < s.outer * s.middle; part++) {
        const float *restrict dy = output_gradient + part % s.middle * s.inner;
        for (jw_index r = 0; r < rows; r++, dx += length) {
            if (s.inner == 1) {
                jw_fill(dx, share * *dy, length);
            } else {
                for (jw_index i = 0; i < length; i++) {
                    dx[i] = share * dy[i];
                }
            }
        }
    }
}

/* Rotary position embedding, Su et al. 2021, in the form that pairs feature i with i + inner / 2:
 * y = x * cosine + (-second half of x, first half of x) * sine. */
void jw_rotary_forward(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    const jw_index half = s.inner / 2;
    const float *x = call->reads[0], *cosine = call->reads[1], *sine = call->reads[2];
    float *y = call->writes[0];
    for (jw_index part = 0; part < s.outer * s.middle; part++) {
        const float *c = cosine + part % s.middle * s.inner, *d = sine + part % s.middle * s.inner;
        for (jw_index b = 0; b < s.between; b++, x += s.inner, y += s.inner) {
            JW_INDEPENDENT
            for (jw_index i = 0; i < half; i++) {
                const float first = x[i], second = x[half + i];
                y[i] = first * c[i] - second * d[i];
                y[half + i] = second * c[half + i] + first * d[half + i];
            }
        }
    }
}

void jw_rotary_input_gradient(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    const jw_index half = s.inner / 2;
    const float *dy = call->reads[0], *cosine = call->reads[1], *sine = call->reads[2];
    float *dx = call->writes[0];
    for (jw_index part = 0; part < s.outer * s.middle; part++) {
        const float *c = cosine + part % s.middle * s.inner, *d = sine + part % s.middle * s.inner;
        for (jw_index b = 0; b < s.between; b++, dy += s.inner, dx += s.inner) {
            JW_INDEPENDENT
            for (jw_index i = 0; i < half; i++) {
                const float first = dy[i], second = dy[half + i];
                dx[i] = first * c[i] + second * d[half + i];
                dx[half + i] = second * c[half + i] - first * d[i];
            }
        }
    }
}
