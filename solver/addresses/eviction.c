/* Addresses for a schedule in one pass over its actions, which pages tensors out of the way; and a
 * local search over the choices of that pass. eviction.py says what a pass does.
 *
 * The choices are numbers of each tensor: how dear it is to page it out of the way, as a multiple of
 * what that costs, and in which gap and at which end of it the tensor is placed.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COMPUTE, PAGE_OUT, PAGE_IN, FREE };

typedef struct {
    int32_t tensor_count, action_count;
    const int32_t *read_start, *reads, *write_start, *writes; /* of each op */
    const int32_t *over;      /* of each written tensor: the read one that it is in place of, -1 */
    const int64_t *workspace; /* of each op */
    const int32_t *kinds, *what;     /* of each action; the op or the tensor */
    const int32_t *use_start, *uses; /* actions that read each tensor */
    const int64_t *bytes;
    const double *out_cost, *in_cost; /* of paging each tensor; infinite if it cannot be paged */
    const int32_t *at_first;          /* tensors in RAM at first, in the order of their addresses */
    int32_t at_first_count;
    const uint8_t *in_storage; /* of each tensor */
    int64_t ram_bytes;
} Problem;

/* Gaps: the smallest one, or the first one from either end. */
enum { SMALLEST_LOW, SMALLEST_HIGH, LOWEST, HIGHEST, PLACES };

typedef struct {
    int32_t *items;
    int64_t count, capacity;
} Numbers;

typedef struct {
    Problem problem;
    uint64_t random;
    /* choices, and the best ones */
    double *weight, *best_weight;
    uint8_t *place, *best_place;
    double best_cost;
    /* a pass: by tensor, of which the last is the workspace */
    int64_t *start, *size; /* -1: not in RAM */
    uint8_t *stored, *away;
    int32_t *next_use, *needed;
    int32_t stamp;
    int32_t *resident, resident_count; /* those with bytes, by address */
    int64_t *starts;                   /* where a place may begin */
    double *sums;
    int32_t *fixed;
    int32_t index;
    double cost, most_cost;
    int failed;     /* more than most_cost, or out of memory */
    Numbers done;   /* pairs: kind, op or tensor */
    Numbers placed; /* tensors in the order in which they are placed */
    int64_t *offsets;
    int64_t offsets_capacity;
    Numbers touched; /* tensors that were paged out of the way, and those in whose way */
} Pass;

static int append(Numbers *numbers, int32_t item) {
    if (numbers->count == numbers->capacity) {
        int64_t capacity = 2 * numbers->capacity + 64;
        int32_t *items = realloc(numbers->items, sizeof *items * (size_t)capacity);
        if (!items) {
            return 0;
        }
        numbers->items = items;
        numbers->capacity = capacity;
    }
    numbers->items[numbers->count++] = item;
    return 1;
}

static void act(Pass *p, int32_t kind, int32_t what) {
    if (!append(&p->done, kind) || !append(&p->done, what)) {
        p->failed = 1;
    }
}

static void pay(Pass *p, double cost) {
    p->cost += cost;
    if (p->cost > p->most_cost) {
        p->failed = 1;
    }
}

/* --- what is in RAM --------------------------------------------------------------------------- */

/* Index of the first resident whose address is not below `start`. */
static int32_t first_from(const Pass *p, int64_t start) {
    int32_t low = 0, high = p->resident_count;
    while (low < high) {
        int32_t middle = (low + high) / 2;
        if (p->start[p->resident[middle]] < start) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void enter(Pass *p, int32_t tensor, int64_t start, int64_t size) {
    p->start[tensor] = start;
    p->size[tensor] = size;
    if (size > 0) {
        int32_t at = first_from(p, start);
        memmove(p->resident + at + 1, p->resident + at,
                sizeof *p->resident * (size_t)(p->resident_count - at));
        p->resident[at] = tensor;
        p->resident_count++;
    }
}

static void leave(Pass *p, int32_t tensor) {
    if (p->start[tensor] >= 0 && p->size[tensor] > 0) {
        int32_t at = first_from(p, p->start[tensor]);
        p->resident_count--;
        memmove(p->resident + at, p->resident + at + 1,
                sizeof *p->resident * (size_t)(p->resident_count - at));
    }
    p->start[tensor] = -1;
}

/* Note an address, which the tensor has from now on. */
static void put(Pass *p, int32_t tensor, int64_t start, int64_t size) {
    enter(p, tensor, start, size);
    if (size == 0) {
        return;
    }
    if (!append(&p->placed, tensor)) {
        p->failed = 1;
        return;
    }
    if (p->placed.capacity > p->offsets_capacity) {
        int64_t *offsets = realloc(p->offsets, sizeof *offsets * (size_t)p->placed.capacity);
        if (!offsets) {
            p->failed = 1;
            return;
        }
        p->offsets = offsets;
        p->offsets_capacity = p->placed.capacity;
    }
    p->offsets[p->placed.count - 1] = start;
}

/* --- room ------------------------------------------------------------------------------------- */

static int is_workspace(const Pass *p, int32_t tensor) {
    return tensor == p->problem.tensor_count;
}

/* Cost of paging a tensor out, if that is needed, and in again. */
static double eviction_cost(const Pass *p, int32_t tensor) {
    if (is_workspace(p, tensor)) {
        return INFINITY;
    }
    return (p->stored[tensor] ? 0.0 : p->problem.out_cost[tensor]) + p->problem.in_cost[tensor];
}

/* Number of actions until a tensor is read. */
static double distance(Pass *p, int32_t tensor) {
    const Problem *problem = &p->problem;
    int32_t at = p->next_use[tensor], end = problem->use_start[tensor + 1];
    while (at < end && problem->uses[at] < p->index) {
        at++;
    }
    p->next_use[tensor] = at;
    return (double)((at < end ? problem->uses[at] : problem->action_count) - p->index + 1);
}

static int evict(Pass *p, int32_t tensor) {
    if (isinf(eviction_cost(p, tensor))) {
        return 0;
    }
    if (!p->stored[tensor]) {
        act(p, PAGE_OUT, tensor);
        pay(p, p->problem.out_cost[tensor]);
        p->stored[tensor] = 1;
    }
    leave(p, tensor);
    p->away[tensor] = 1;
    if (!append(&p->touched, tensor)) {
        p->failed = 1;
    }
    return 1;
}

static int64_t gap_for(const Pass *p, int64_t bytes, int place) {
    int64_t found = -1, found_bytes = INT64_MAX, end_before = 0;
    for (int32_t i = 0; i <= p->resident_count; i++) {
        int is_last = i == p->resident_count;
        int32_t tensor = is_last ? -1 : p->resident[i];
        int64_t end = is_last ? p->problem.ram_bytes : p->start[tensor], gap = end - end_before;
        if (gap >= bytes) {
            int is_better = place == HIGHEST || (place == LOWEST ? found < 0 : gap < found_bytes);
            if (is_better) {
                found = place == HIGHEST || place == SMALLEST_HIGH ? end - bytes : end_before;
                found_bytes = gap;
            }
        }
        if (!is_last) {
            end_before = p->start[tensor] + p->size[tensor];
        }
    }
    return found;
}

static int ascending(const void *one, const void *other) {
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

/* Address for so many bytes, where other tensors make room if necessary; -1 if what is needed is in
 * the way everywhere. */
static int64_t room(Pass *p, int32_t tensor, int64_t bytes) {
    if (bytes == 0) {
        return 0;
    }
    int64_t gap = gap_for(p, bytes, p->place[tensor]);
    if (gap >= 0) {
        return gap;
    }
    int32_t count = p->resident_count, start_count = 0;
    int64_t last = p->problem.ram_bytes - bytes;
    if (last < 0) {
        return -1;
    }
    p->starts[start_count++] = 0;
    p->starts[start_count++] = last;
    p->sums[0] = 0;
    p->fixed[0] = 0;
    for (int32_t i = 0; i < count; i++) {
        int32_t other = p->resident[i];
        double cost = p->needed[other] == p->stamp ? INFINITY : eviction_cost(p, other);
        int is_fixed = isinf(cost);
        p->fixed[i + 1] = p->fixed[i] + is_fixed;
        p->sums[i + 1] = p->sums[i] + (is_fixed ? 0 : p->weight[other] * cost / distance(p, other));
        int64_t after = p->start[other] + p->size[other], before = p->start[other] - bytes;
        if (after <= last) {
            p->starts[start_count++] = after;
        }
        if (before >= 0 && before <= last) {
            p->starts[start_count++] = before;
        }
    }
    qsort(p->starts, (size_t)start_count, sizeof *p->starts, ascending);
    double best_cost = INFINITY;
    int64_t best = -1;
    int32_t best_first = 0, best_end = 0, first = 0, end = 0;
    for (int32_t i = 0; i < start_count; i++) {
        int64_t start = p->starts[i];
        while (first < count &&
               p->start[p->resident[first]] + p->size[p->resident[first]] <= start) {
            first++;
        }
        while (end < count && p->start[p->resident[end]] < start + bytes) {
            end++;
        }
        double cost = p->sums[end] - p->sums[first];
        if (p->fixed[first] == p->fixed[end] && cost < best_cost) {
            best_cost = cost;
            best = start;
            best_first = first;
            best_end = end;
        }
    }
    if (best < 0) {
        return -1;
    }
    for (int32_t i = best_first; i < best_end; i++) { /* each takes itself off the list */
        if (!evict(p, p->resident[best_first])) {
            return -1;
        }
    }
    if (!append(&p->touched, tensor)) {
        p->failed = 1;
    }
    return best;
}

static int bring(Pass *p, int32_t tensor) {
    if (p->start[tensor] >= 0) {
        return 1;
    }
    int64_t start = room(p, tensor, p->problem.bytes[tensor]);
    if (start < 0 || isinf(p->problem.in_cost[tensor])) {
        return 0;
    }
    put(p, tensor, start, p->problem.bytes[tensor]);
    act(p, PAGE_IN, tensor);
    pay(p, p->problem.in_cost[tensor]);
    p->away[tensor] = 0;
    return 1;
}

/* --- actions ---------------------------------------------------------------------------------- */

/* Whether a written tensor takes over the bytes of the one that it is in place of. */
static int takes_over(const Pass *p, int32_t at) {
    const Problem *problem = &p->problem;
    return problem->over[at] >= 0 && problem->bytes[problem->writes[at]] > 0 &&
           problem->bytes[problem->over[at]] > 0;
}

static int compute(Pass *p, int32_t op) {
    const Problem *problem = &p->problem;
    p->stamp++;
    for (int32_t i = problem->read_start[op]; i < problem->read_start[op + 1]; i++) {
        p->needed[problem->reads[i]] = p->stamp;
    }
    for (int32_t i = problem->read_start[op]; i < problem->read_start[op + 1]; i++) {
        if (!bring(p, problem->reads[i])) {
            return 0;
        }
    }
    int32_t begin = problem->write_start[op], end = problem->write_start[op + 1];
    for (int32_t i = begin; i < end; i++) {
        if (takes_over(p, i) &&
            problem->bytes[problem->writes[i]] > problem->bytes[problem->over[i]]) {
            return 0;
        }
    }
    int64_t kept = p->placed.count;
    int64_t limit = INT64_MAX;
    for (;;) { /* what is written and the workspace, large ones first */
        int32_t next = -1;
        int64_t size = -1;
        for (int32_t i = begin; i <= end; i++) {
            int32_t tensor = i == end ? problem->tensor_count : problem->writes[i];
            int64_t bytes = i == end ? problem->workspace[op] : problem->bytes[tensor];
            int is_done = p->needed[tensor] == p->stamp;
            if (!is_done && (i == end || !takes_over(p, i)) && bytes > size && bytes <= limit) {
                next = tensor;
                size = bytes;
            }
        }
        if (next < 0) {
            break;
        }
        leave(p, next);
        int64_t start = room(p, next, size);
        if (start < 0) {
            for (int64_t i = kept; i < p->placed.count; i++) {
                leave(p, p->placed.items[i]);
            }
            for (int32_t i = begin; i < end; i++) {
                int32_t tensor = problem->writes[i];
                if (!takes_over(p, i) && problem->bytes[tensor] == 0) {
                    p->start[tensor] = -1;
                }
            }
            p->placed.count = kept;
            return 0;
        }
        put(p, next, start, size);
        p->away[next] = 0;
        p->needed[next] = p->stamp;
    }
    leave(p, problem->tensor_count);
    for (int32_t i = begin; i < end; i++) {
        int32_t read = problem->over[i];
        if (read < 0) {
            continue;
        }
        int64_t start = p->start[read], size = p->size[read];
        leave(p, read);
        if (takes_over(p, i)) {
            leave(p, problem->writes[i]);
            enter(p, problem->writes[i], start, size);
            p->away[problem->writes[i]] = 0;
        }
    }
    act(p, COMPUTE, op);
    return 1;
}

static int evict_all(Pass *p) {
    for (int32_t tensor = 0; tensor < p->problem.tensor_count; tensor++) {
        if (p->start[tensor] >= 0 && p->size[tensor] > 0 && !evict(p, tensor)) {
            return 0;
        }
    }
    return 1;
}

/* Page everything out, and what the op reads in again. */
static int clear_for(Pass *p, int32_t op) {
    const Problem *problem = &p->problem;
    if (!evict_all(p)) {
        return 0;
    }
    p->stamp++;
    for (int32_t i = problem->read_start[op]; i < problem->read_start[op + 1]; i++) {
        p->needed[problem->reads[i]] = p->stamp;
    }
    for (int32_t i = problem->read_start[op]; i < problem->read_start[op + 1]; i++) {
        if (!bring(p, problem->reads[i])) {
            return 0;
        }
    }
    return 1;
}

/* Page in what the schedule leaves in RAM, large tensors first. Nothing may make room for it. */
static int bring_all_back(Pass *p) {
    p->stamp++;
    for (int32_t tensor = 0; tensor < p->problem.tensor_count; tensor++) {
        if (p->start[tensor] >= 0) {
            p->needed[tensor] = p->stamp;
        }
    }
    for (;;) {
        int32_t largest = -1;
        for (int32_t tensor = 0; tensor < p->problem.tensor_count; tensor++) {
            int is_larger = largest < 0 || p->problem.bytes[tensor] > p->problem.bytes[largest];
            if (p->away[tensor] && is_larger) {
                largest = tensor;
            }
        }
        if (largest < 0) {
            return 1;
        }
        if (!bring(p, largest)) {
            return 0;
        }
        p->needed[largest] = p->stamp;
    }
}

static int do_action(Pass *p, int32_t kind, int32_t what) {
    switch (kind) {
    case COMPUTE:
        return compute(p, what) || (!p->failed && clear_for(p, what) && compute(p, what));
    case PAGE_OUT:
        if (!p->stored[what]) {
            act(p, PAGE_OUT, what);
            pay(p, p->problem.out_cost[what]);
            p->stored[what] = 1;
        }
        return 1;
    case PAGE_IN:
        p->stamp++;
        return bring(p, what);
    default:
        p->away[what] = 0;
        leave(p, what);
        return 1;
    }
}

/* A pass with the present choices; its cost of paging, infinite if it fails or exceeds `most`. */
static double run(Pass *p, double most) {
    const Problem *problem = &p->problem;
    int32_t tensors = problem->tensor_count;
    p->cost = 0;
    p->most_cost = most;
    p->failed = 0;
    p->done.count = p->placed.count = p->touched.count = 0;
    p->resident_count = 0;
    memcpy(p->stored, problem->in_storage, (size_t)tensors);
    memset(p->away, 0, (size_t)tensors + 1);
    memcpy(p->next_use, problem->use_start, sizeof *p->next_use * (size_t)tensors);
    for (int32_t i = 0; i <= tensors; i++) {
        p->start[i] = -1;
    }
    int64_t start = 0;
    for (int32_t i = 0; i < problem->at_first_count; i++) {
        int32_t tensor = problem->at_first[i];
        put(p, tensor, start, problem->bytes[tensor]);
        start += problem->bytes[tensor];
    }
    if (start > problem->ram_bytes) {
        return INFINITY;
    }
    for (p->index = 0; p->index < problem->action_count; p->index++) {
        if (!do_action(p, problem->kinds[p->index], problem->what[p->index]) || p->failed) {
            return INFINITY;
        }
    }
    if (!bring_all_back(p) && (p->failed || !evict_all(p) || !bring_all_back(p))) {
        return INFINITY;
    }
    return p->failed ? INFINITY : p->cost;
}

/* --- search ----------------------------------------------------------------------------------- */

static uint64_t draw(Pass *p) {
    uint64_t x = p->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return p->random = x;
}

static double uniform(Pass *p) {
    return ((double)(draw(p) >> 12) + 0.5) * 0x1p-52;
}

static int32_t below(Pass *p, int64_t n) {
    return (int32_t)(uniform(p) * (double)n);
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void keep(Pass *p, double cost) {
    size_t tensors = (size_t)p->problem.tensor_count + 1;
    p->best_cost = cost;
    memcpy(p->best_weight, p->weight, sizeof *p->weight * tensors);
    memcpy(p->best_place, p->place, tensors);
}

enum { MOST_CHANGES = 4 };

/* Change the choices of some tensors, mostly of those that had to make room; accept what is not
 * worse by more than a temperature that falls to 0. Costs are those of paging; `enough` is a cost at
 * which the search ends. */
void eviction_search(Pass *p, double duration_s, double hot, double enough) {
    double began = now_s(), current = run(p, INFINITY);
    if (current < p->best_cost) {
        keep(p, current);
    }
    Numbers touched = {0};
    for (int64_t i = 0; i < p->touched.count; i++) {
        append(&touched, p->touched.items[i]);
    }
    for (;;) {
        double elapsed = (now_s() - began) / duration_s;
        if (!(elapsed < 1) || isinf(current) || p->best_cost <= enough) {
            break;
        }
        int32_t changed[MOST_CHANGES];
        double weight[MOST_CHANGES];
        uint8_t place[MOST_CHANGES];
        int count = 1 + below(p, MOST_CHANGES);
        for (int i = 0; i < count; i++) {
            int is_touched = touched.count > 0 && uniform(p) < 0.8;
            int32_t tensor = is_touched ? touched.items[below(p, touched.count)]
                                        : below(p, p->problem.tensor_count + 1);
            changed[i] = tensor;
            weight[i] = p->weight[tensor];
            place[i] = p->place[tensor];
            if (uniform(p) < 0.5) {
                p->weight[tensor] = fmin(fmax(weight[i] * exp(3 * uniform(p) - 1.5), 1e-3), 1e3);
            } else {
                p->place[tensor] = (uint8_t)below(p, PLACES);
            }
        }
        double cost = run(p, current - hot * (1 - elapsed) * log(uniform(p)));
        if (isinf(cost)) {
            for (int i = count; i-- > 0;) {
                p->weight[changed[i]] = weight[i];
                p->place[changed[i]] = place[i];
            }
            continue;
        }
        current = cost;
        touched.count = 0;
        for (int64_t i = 0; i < p->touched.count; i++) {
            append(&touched, p->touched.items[i]);
        }
        if (cost < p->best_cost) {
            keep(p, cost);
        }
    }
    free(touched.items);
}

/* Repeat the best pass; 0 if there is none. Its numbers are valid until the next call. */
int32_t eviction_best(Pass *p, const int32_t **done, int64_t *done_count, const int32_t **placed,
                      const int64_t **offsets, int64_t *placed_count) {
    size_t tensors = (size_t)p->problem.tensor_count + 1;
    memcpy(p->weight, p->best_weight, sizeof *p->weight * tensors);
    memcpy(p->place, p->best_place, tensors);
    if (isinf(p->best_cost) || isinf(run(p, INFINITY))) {
        return 0;
    }
    *done = p->done.items;
    *done_count = p->done.count / 2;
    *placed = p->placed.items;
    *offsets = p->offsets;
    *placed_count = p->placed.count;
    return 1;
}

void eviction_close(Pass *p) {
    if (!p) {
        return;
    }
    free(p->weight);
    free(p->best_weight);
    free(p->place);
    free(p->best_place);
    free(p->start);
    free(p->size);
    free(p->stored);
    free(p->away);
    free(p->next_use);
    free(p->needed);
    free(p->resident);
    free(p->starts);
    free(p->sums);
    free(p->fixed);
    free(p->done.items);
    free(p->placed.items);
    free(p->offsets);
    free(p->touched.items);
    free(p);
}

/* Allocate a pass; NULL without enough memory. Arrays of the problem must outlive it. */
Pass *eviction_open(const Problem *problem, uint64_t seed) {
    Pass *p = calloc(1, sizeof *p);
    if (!p) {
        return NULL;
    }
    size_t room = (size_t)problem->tensor_count + 2;
    p->problem = *problem;
    p->random = seed * 0x9E3779B97F4A7C15u + 0x1234567u;
    p->best_cost = INFINITY;
    p->weight = malloc(room * sizeof *p->weight);
    p->best_weight = malloc(room * sizeof *p->best_weight);
    p->place = calloc(room, 1);
    p->best_place = calloc(room, 1);
    p->start = malloc(room * sizeof *p->start);
    p->size = calloc(room, sizeof *p->size);
    p->stored = calloc(room, 1);
    p->away = calloc(room, 1);
    p->next_use = calloc(room, sizeof *p->next_use);
    p->needed = calloc(room, sizeof *p->needed);
    p->resident = malloc(room * sizeof *p->resident);
    p->starts = malloc((2 * room + 2) * sizeof *p->starts);
    p->sums = malloc(room * sizeof *p->sums);
    p->fixed = malloc(room * sizeof *p->fixed);
    if (!p->weight || !p->best_weight || !p->place || !p->best_place || !p->start || !p->size ||
        !p->stored || !p->away || !p->next_use || !p->needed || !p->resident || !p->starts ||
        !p->sums || !p->fixed) {
        eviction_close(p);
        return NULL;
    }
    for (size_t i = 0; i < room; i++) {
        p->weight[i] = p->best_weight[i] = 1;
    }
    return p;
}
