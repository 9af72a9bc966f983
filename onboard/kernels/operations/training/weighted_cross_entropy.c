/* Cross entropy with weights of classes, smoothed labels, and labels that are ignored.
 *
 * A row's target is (1 - s) w[label] for its label and s w[c] / classes for each class c, with the
 * smoothing s. Its loss is the sum of target * (log(sum(exp(x))) - x). The sum over rows is divided
 * by the weights of their labels, or by their number. */
#include "exponential.h"
#include "kernels.h"
#include "logarithm.h"

typedef struct {
    jw_index rows, classes;
    int by_weight;
    const int32_t *labels;
    const float *weights;
    float share, smoothing;
    int32_t ignored;
} loss;

static loss loss_of(const jw_call *call, const int32_t *labels, const float *weights,
                    float smoothing, float ignored) {
    const int32_t *a = call->attributes;
    const loss l = {
        a[0], a[1], a[2] != 0, labels, weights, call->scalars[0], smoothing, (int32_t)ignored};
    return l;
}

static loss whole_loss(const jw_call *call) {
    return loss_of(call, call->reads[1], call->reads[2], call->scalars[1], call->scalars[2]);
}

/* Whether a row counts: labels that are no class never do. */
static int counts(const loss *l, jw_index row) {
    const int32_t label = l->labels[row];
    return label != l->ignored && label >= 0 && label < l->classes;
}

/* By what the sum over rows is divided. */
static float divisor(const loss *l) {
    if (!l->by_weight) {
        return (float)l->rows;
    }
    float total = 0.0f;
    for (jw_index r = 0; r < l->rows; r++) {
        total += counts(l, r) ? l->weights[l->labels[r]] : 0.0f;
    }
    return total;
}

/* Target of each class beside the label's own, for a weight of 1. */
static float smoothed(const loss *l) {
    return l->smoothing / (float)l->classes;
}

void jw_weighted_cross_entropy_forward(const jw_call *call) {
    const loss l = whole_loss(call);
    const float *logits = call->reads[0];
    const float each = smoothed(&l), all = each > 0.0f ? each * jw_sum(l.weights, l.classes) : 0.0f;
    float total = 0.0f;
    for (jw_index r = 0; r < l.rows; r++) {
        if (!counts(&l, r)) {
            continue;
        }
        const float *x = logits + r * l.classes;
        const float maximum = jw_maximum(x[0], x, l.classes);
        const float own = (1.0f - l.smoothing) * l.weights[l.labels[r]];
        float lanes[JW_LANES];
        jw_clear_lanes(lanes);
        JW_ADD_PRODUCTS(lanes, l.classes, jw_exp(x[i] - maximum), 1.0f);
        const float logarithm = jw_log(jw_fold_lanes(lanes));
        total += own * (logarithm - (x[l.labels[r]] - maximum));
        if (each > 0.0f) {
            jw_clear_lanes(lanes);
            JW_ADD_PRODUCTS(lanes, l.classes, x[i] - maximum, l.weights[i]);
            total += all * logarithm - each * jw_fold_lanes(lanes);
        }
    }
    *(float *)call->writes[0] = l.share * (total / divisor(&l));
}

/* softmax(x) times the sum of the row's targets, less the targets */
void jw_weighted_cross_entropy_input_gradient(const jw_call *call) {
    const loss l = whole_loss(call);
    const float *logits = call->reads[0];
    const float each = smoothed(&l), all = each > 0.0f ? each * jw_sum(l.weights, l.classes) : 0.0f;
    const float share = l.share / divisor(&l);
    for (jw_index r = 0; r < l.rows; r++) {
        const float *x = logits + r * l.classes;
        float *gradient = (float *)call->writes[0] + r * l.classes;
        if (!counts(&l, r)) {
            jw_fill(gradient, 0.0f, l.classes);
            continue;
        }
        const float own = (1.0f - l.smoothing) * l.weights[l.labels[r]];
        const float maximum = jw_maximum(x[0], x, l.classes);
        JW_INDEPENDENT
        for (jw_index i = 0; i < l.classes; i++) {
            gradient[i] = jw_exp(x[i] - maximum);
        }
        const float scale = share * (own + all) / jw_sum(gradient, l.classes);
        JW_INDEPENDENT
        for (jw_index i = 0; i < l.classes; i++) {
            gradient[i] = gradient[i] * scale - share * each * l.weights[i];
        }
        gradient[l.labels[r]] -= share * own;
    }
}

/* --- over parts of the classes, without smoothing ------------------------------------------------ */

void jw_weighted_cross_entropy_block_loss(const jw_call *call) {
    const loss l = loss_of(call, call->reads[3], call->reads[4], 0.0f, call->scalars[1]);
    const float *maximum = call->reads[0], *label_logit = call->reads[1], *sums = call->reads[2];
    float total = 0.0f;
    for (jw_index r = 0; r < l.rows; r++) {
        if (counts(&l, r)) {
            const float logarithm = jw_log(jw_folded_lanes(sums + r * JW_LANES));
            total += l.weights[l.labels[r]] * (logarithm - (label_logit[r] - maximum[r]));
        }
    }
    *(float *)call->writes[0] = l.share * (total / divisor(&l));
}

void jw_weighted_cross_entropy_block_input_gradient(const jw_call *call) {
    const loss l = loss_of(call, call->reads[1], call->reads[4], 0.0f, call->scalars[1]);
    const jw_index first = call->attributes[3], channels = call->attributes[4];
    const float *maximum = call->reads[2], *sums = call->reads[3];
    const float share = l.share / divisor(&l);
    for (jw_index r = 0; r < l.rows; r++) {
        const float *x = (const float *)call->reads[0] + r * channels;
        float *gradient = (float *)call->writes[0] + r * channels;
        if (!counts(&l, r)) {
            jw_fill(gradient, 0.0f, channels);
            continue;
        }
        const float own = l.weights[l.labels[r]];
        const float scale = share * own / jw_folded_lanes(sums + r * JW_LANES);
        const jw_index label = l.labels[r] - first;
        JW_INDEPENDENT
        for (jw_index i = 0; i < channels; i++) {
            gradient[i] = jw_exp(x[i] - maximum[r]) * scale;
        }
        if (label >= 0 && label < channels) {
            gradient[label] -= share * own;
        }
    }
}
