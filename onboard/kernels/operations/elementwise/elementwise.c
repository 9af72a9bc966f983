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
void jw_dropout(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const jw_dropout_mask mask = jw_dropout_mask_of(call->scalars);
    const float *x = call->reads[0];
    float *y = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        y[i] = jw_dropped(mask, (uint32_t)i, x[i]);
    }
}
