/* Table of plans for programs that only profile: it is empty. */
#include "execution_plan.h"

const jw_plan *const jw_plans[] = {NULL};
const size_t jw_plan_count = 0;
