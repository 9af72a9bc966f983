/* Simple kernels, and data about the executor's library that tests read. */
#include "executor.h"

/* Adds one to every word; the first attribute is the number of words. */
void shim_bump(const jw_call *call) {
    const uint32_t *before = call->reads[0];
    uint32_t *after = call->writes[0];
    for (int32_t i = 0; i < call->attributes[0]; i++) {
        after[i] = before[i] + 1;
    }
}

/* Adds the words of the second operand to those of the first. */
void shim_add(const jw_call *call) {
    const uint32_t *before = call->reads[0], *added = call->reads[1];
    uint32_t *after = call->writes[0];
    for (int32_t i = 0; i < call->attributes[0]; i++) {
        after[i] = before[i] + added[i];
    }
}

/* As shim_bump, but writes one word too many after the last. */
void shim_overrun(const jw_call *call) {
    shim_bump(call);
    ((uint32_t *)call->writes[0])[call->attributes[0]] = 7;
}

/* As shim_bump, but writes one word too many before the first. */
void shim_underrun(const jw_call *call) {
    shim_bump(call);
    ((uint32_t *)call->writes[0])[-1] = 7;
}

const size_t shim_sizes[] = {sizeof(jw_action),
                             sizeof(jw_operation),
                             sizeof(jw_slot),
                             sizeof(jw_kept),
                             sizeof(jw_selection),
                             sizeof(jw_table),
                             sizeof(jw_span),
                             sizeof(jw_plan_memory),
                             sizeof(jw_plan),
                             sizeof(jw_medium),
                             sizeof(jw_store),
                             sizeof(jw_executor),
                             0};
