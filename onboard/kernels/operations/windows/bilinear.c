/* Bilinear upsampling: every element of the output is a mean of four of the input, weighted by
 * their distances. */
#include "kernels.h"

typedef struct {
    jw_index in, out, align;
    float step; /* distance of two outputs, in elements of the input */
} axis;

/* Two neighbours in the input, and the weight of the second. */
typedef struct {
    int32_t first, second;
    float weight;
} place;

/* Where output i lies. Without aligned corners, centres of elements are at halves. */
static place place_of(const axis *a, jw_index i) {
    const float from_centre = ((float)i + 0.5f) * a->step - 0.5f;
    const float centred = from_centre < 0.0f ? 0.0f : from_centre;
    const float at = a->align ? (float)i * a->step : centred;
    const jw_index first = jw_min((jw_index)at, a->in - 1);
    const place p = {(int32_t)first, (int32_t)jw_min(first + 1, a->in - 1), at - (float)first};
    return p;
}

static axis vertical(const jw_call *call) {
    const int32_t *a = call->attributes;
    const axis found = {a[2], a[4], a[6], call->scalars[0]};
    return found;
}

static axis horizontal(const jw_call *call) {
    const int32_t *a = call->attributes;
    const axis found = {a[3], a[5], a[6], call->scalars[1]};
    return found;
}

/* The places of a row, and the row between two rows of the input. */
size_t jw_upsample_bilinear2d_workspace(const int32_t *attributes) {
    return (size_t)attributes[5] * sizeof(place) + (size_t)attributes[3] * sizeof(float);
}

static place *places_of(const axis *x, void *workspace) {
    place *places = workspace;
    for (jw_index i = 0; i < x->out; i++) {
        places[i] = place_of(x, i);
    }
    return places;
}

void jw_upsample_bilinear2d_forward(const jw_call *call) {
    const axis y = vertical(call), x = horizontal(call);
    const jw_index planes = (jw_index)call->attributes[0] * call->attributes[1];
    const place *places = places_of(&x, call->workspace);
    float *restrict row = (float *)((place *)call->workspace + x.out);
    const float *restrict input = call->reads[0];
    float *restrict output = call->writes[0];

    for (jw_index p = 0; p < planes; p++, input += y.in * x.in) {
        for (jw_index i = 0; i < y.out; i++, output += x.out) {
            const place at = place_of(&y, i);
            const float *first = input + at.first * x.in, *second = input + at.second * x.in;
            for (jw_index j = 0; j < x.in; j++) {
                row[j] = JW_FMA(at.weight, second[j] - first[j], first[j]);
            }
            for (jw_index j = 0; j < x.out; j++) {
                const float left = row[places[j].first], right = row[places[j].second];
                output[j] = JW_FMA(places[j].weight, right - left, left);
            }
        }
    }
}

void jw_upsample_bilinear2d_input_gradient(const jw_call *call) {
    const axis y = vertical(call), x = horizontal(call);
    const jw_index planes = (jw_index)call->attributes[0] * call->attributes[1];
    const place *places = places_of(&x, call->workspace);
    float *restrict row = (float *)((place *)call->workspace + x.out);
    const float *restrict output_gradient = call->reads[0];
    float *restrict input_gradient = call->writes[0];

    for (jw_index p = 0; p < planes; p++, input_gradient += y.in * x.in) {
        jw_fill(input_gradient, 0.0f, y.in * x.in);
        for (jw_index i = 0; i < y.out; i++, output_gradient += x.out) {
            const place at = place_of(&y, i);
            float *first = input_gradient + at.first * x.in;
            float *second = input_gradient + at.second * x.in;
            jw_fill(row, 0.0f, x.in);
            for (jw_index j = 0; j < x.out; j++) {
                const float right = places[j].weight * output_gradient[j];
                row[places[j].first] += output_gradient[j] - right;
                row[places[j].second] += right;
            }
            for (jw_index j = 0; j < x.in; j++) {
                const float below = at.weight * row[j];
                first[j] += row[j] - below;
                second[j] += below;
            }
        }
    }
}
