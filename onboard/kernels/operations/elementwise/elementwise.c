/* Sums, products, copies and dropout. */
#include "dropout.h"
#include "kernels.h"

static void add(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float *left = call->reads[0], *right = call->reads[1];
    float *sum = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        sum[i] = left[i] + right[i];
    }
}

void jw_add_forward(const jw_call *call) {
    add(call);
}

void jw_gradient_accumulate(const jw_call *call) {
    add(call);
}

/* The output, and the gradient of either factor: the output gradient times the other one. */
void jw_multiply(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float *left = call->reads[0], *right = call->reads[1];
    float *product = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        product[i] = left[i] * right[i];
    }
}

/* Copies the elements, whose shape alone changes; in place there is nothing to copy. */
void jw_flatten(const jw_call *call) {
    if (call->writes[0] != call->reads[0]) {
        memcpy(call->writes[0], call->reads[0], (size_t)call->attributes[0] * sizeof(float));
    }
}

void jw_concat_forward(const jw_call *call) {
    const jw_index outer = call->attributes[0];
    const jw_index left = call->attributes[1], right = call->attributes[2];
    const float *left_source = call->reads[0], *right_source = call->reads[1];
    float *target = call->writes[0];
    for (jw_index o = 0; o < outer; o++) {
        memcpy(target, left_source + o * left, (size_t)left * sizeof(float));
        target += left;
        memcpy(target, right_source + o * right, (size_t)right * sizeof(float));
        target += right;
    }
}

void jw_concat_input_gradient(const jw_call *call) {
    const jw_index outer = call->attributes[0];
    const jw_index left = call->attributes[1], right = call->attributes[2];
    const float *source = call->reads[0];
    float *left_target = call->writes[0], *right_target = call->writes[1];
    for (jw_index o = 0; o < outer; o++) {
        memcpy(left_target + o * left, source, (size_t)left * sizeof(float));
        source += left;
        memcpy(right_target + o * right, source, (size_t)right * sizeof(float));
        source += right;
    }
}

/* The backward pass is the same map, with the same mask. */
static void drop(jw_dropout_mask mask, uint32_t position, const float *x, float *y,
                 jw_index elements) {
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        y[i] = jw_dropped(mask, position + (uint32_t)i, x[i]);
    }
}

void jw_dropout(const jw_call *call) {
    drop(jw_dropout_mask_of(call->scalars), 0, call->reads[0], call->writes[0],
         call->attributes[0]);
}

/* One draw for each row: it is kept and multiplied by a factor, or zero. */
void jw_dropout_rows(const jw_call *call) {
    const jw_index rows = call->attributes[0], inner = call->attributes[1];
    const float drawn[2] = {call->scalars[0], call->scalars[2]}, factor = call->scalars[1];
    const jw_dropout_mask mask = jw_dropout_mask_of(drawn);
    for (jw_index r = 0; r < rows; r++) {
        const float *x = (const float *)call->reads[0] + r * inner;
        float *y = (float *)call->writes[0] + r * inner;
        if (jw_dropped(mask, (uint32_t)r, 1.0f) == 0.0f) { /* also of what is not finite */
            jw_fill(y, 0.0f, inner);
            continue;
        }
        JW_INDEPENDENT
        for (jw_index i = 0; i < inner; i++) {
            y[i] = x[i] * factor;
        }
    }
}

void jw_dropout_part(const jw_call *call) {
    const jw_index outer = call->attributes[0], inner = call->attributes[1];
    const uint32_t distance = (uint32_t)call->attributes[2], first = (uint32_t)call->attributes[3];
    const jw_dropout_mask mask = jw_dropout_mask_of(call->scalars);
    const float *x = call->reads[0];
    float *y = call->writes[0];
    for (jw_index n = 0; n < outer; n++) {
        drop(mask, first + (uint32_t)n * distance, x + n * inner, y + n * inner, inner);
    }
}
