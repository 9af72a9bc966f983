/* A program that measures, and replays nothing. */
#include "execution_plan.h"

const jw_plan *const jw_plans[] = {NULL};
const size_t jw_plan_count = 0;
