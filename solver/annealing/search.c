/* Annealing of a sequence, and what Python calls. */
#include "sequence.h"

#include <math.h>
#include <string.h>
#include <time.h>

/* Initial penalty for exceeding the budget by 100 % in one slot, or the deadline by 100 %: a tenth
 * of the cost of computing every op once. */
#define FIRST_WEIGHT 100.0

static double memory_penalty(const Search *s) {
    return s->memory_weight * s->excess / s->problem.ram_bytes;
}

static double late_penalty(const Search *s) {
    double late = s->seconds - s->problem.deadline_s;
    return late > 0 ? s->late_weight * late / s->problem.deadline_s : 0;
}

static double penalised_cost(const Search *s) {
    return s->cost + memory_penalty(s) + late_penalty(s);
}

static int is_feasible(const Search *s) {
    return s->excess <= 0 && s->seconds <= s->problem.deadline_s;
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Whether the sequence is within the budget and the deadline, with addresses if it needs some. At
 * most half of the time since `began` goes into looking for these: a sequence may be passed over. */
static int is_acceptable(Search *s, double began) {
    if (!is_feasible(s)) {
        return 0;
    }
    if (s->arena.bytes <= 0) {
        return 1;
    }
    double start = now_s();
    if (s->packing_s > 0.5 * (start - began)) {
        return 0;
    }
    int is_packed = has_addresses(s);
    s->packing_s += now_s() - start;
    return is_packed;
}

static void keep_best(Search *s) {
    s->best_block_count = s->arena.bytes > 0 ? s->arena.count : 0;
    if (s->best_block_count > s->best_block_capacity) {
        s->best_block_capacity = s->arena.capacity;
        s->best_lows = resized(s->best_lows, sizeof *s->best_lows * (size_t)s->best_block_capacity);
    }
    for (int32_t i = 0; i < s->best_block_count; i++) {
        s->best_lows[i] = s->arena.blocks[i].low;
    }
    s->best_cost = s->cost;
    s->best_length = s->length;
    for (int32_t i = 0; i < s->length; i++) {
        s->best[i] = s->event[s->sequence[i]];
    }
}

/* Anneal from one temperature to another in a given time. The weights adapt so that the penalty for
 * exceeding the budget or the deadline is about `leeway` temperatures. With less leeway the search
 * freezes at the border of what fits; with more it drifts away from it. */
void sequence_anneal(Search *s, double from, double to, double leeway, double duration_s) {
    double began = now_s(), temperature = from, value = penalised_cost(s);
    s->packing_s = 0;
    for (int64_t moves = 0;; moves++) {
        if ((moves & 255) == 0) {
            double elapsed = (now_s() - began) / duration_s;
            if (elapsed >= 1) {
                break;
            }
            temperature = from * pow(to / from, elapsed);
            double most = leeway * temperature;
            s->memory_weight *= memory_penalty(s) > most ? 1.02 : 0.98;
            s->late_weight *= late_penalty(s) > most ? 1.02 : 0.98;
            value = penalised_cost(s);
        }
        if (!move(s)) {
            continue;
        }
        double after = penalised_cost(s);
        if (s->broken || (after > value && uniform(s) >= exp((value - after) / temperature))) {
            undo(s);
            continue;
        }
        value = after;
        if (s->cost < s->best_cost - 1e-9 && is_acceptable(s, began)) {
            keep_best(s);
        }
    }
}

/* Restart from a sequence of events, including the beginning and the end. Moves do not page in
 * tensors that are `barred` (NULL: none); the array must outlive the annealing that follows. Return
 * 0 if the sequence exceeds the capacity, or uses a tensor that is not available. */
int32_t sequence_restart(Search *s, const int32_t *events, int32_t length, const uint8_t *barred) {
    s->barred = barred;
    s->memory_weight = s->late_weight = FIRST_WEIGHT;
    if (!set_sequence(s, events, length)) {
        return 0;
    }
    s->packing_s = 0;
    if (s->cost < s->best_cost && is_acceptable(s, now_s())) {
        keep_best(s);
    }
    return 1;
}

void sequence_close(Search *s) {
    if (!s) {
        return;
    }
    for (int32_t i = 0; s->of_tensor && i < s->problem.tensor_count; i++) {
        free(s->of_tensor[i].nodes);
    }
    free(s->sequence);
    free(s->event);
    free(s->position);
    free(s->spare);
    free(s->of_tensor);
    free(s->first);
    free(s->occurrences);
    free(s->slots);
    free(s->changes);
    free(s->best);
    free(s->best_lows);
    free(s->arena.blocks);
    free(s->arena.order);
    free(s->arena.placed);
    free(s->arena.block_of);
    free(s);
}

/* Allocate a search; NULL without enough memory. Arrays of the problem must outlive the search. */
Search *sequence_open(const Problem *problem, int32_t capacity, int32_t free_order, uint64_t seed) {
    Search *s = calloc(1, sizeof *s);
    if (!s) {
        return NULL;
    }
    size_t room = (size_t)capacity;
    s->problem = *problem;
    s->capacity = capacity;
    s->free_order = free_order;
    s->random = seed * 0x9E3779B97F4A7C15u + 0x1234567u;
    s->best_cost = INFINITY;
    s->sequence = malloc(room * sizeof *s->sequence);
    s->event = malloc(room * sizeof *s->event);
    s->position = malloc(room * sizeof *s->position);
    s->spare = malloc(room * sizeof *s->spare);
    s->best = malloc(room * sizeof *s->best);
    s->slots = malloc(2 * room * sizeof *s->slots);
    s->of_tensor = calloc((size_t)problem->tensor_count + 1, sizeof *s->of_tensor);
    s->arena.block_of = calloc((size_t)problem->tensor_count + 1, sizeof *s->arena.block_of);
    s->first = calloc((size_t)problem->op_count + 1, sizeof *s->first);
    s->occurrences = calloc((size_t)problem->event_count, sizeof *s->occurrences);
    if (!s->sequence || !s->event || !s->position || !s->spare || !s->best || !s->slots ||
        !s->of_tensor || !s->arena.block_of || !s->first || !s->occurrences) {
        sequence_close(s);
        return NULL;
    }
    return s;
}

/* Limit the RAM from the next restart on. */
void sequence_limit_ram(Search *s, double ram_bytes) {
    s->problem.ram_bytes = ram_bytes;
}

/* The seconds of events have changed, and those of unavoidable page-outs are these: forget the best
 * sequence. They count from the next restart on. */
void sequence_retime(Search *s, double base_seconds) {
    s->problem.base_seconds = base_seconds;
    s->best_cost = INFINITY;
    s->best_length = 0;
}

/* From now on, the best sequence needs addresses in an arena of so many bytes. */
void sequence_pack(Search *s, double arena_bytes) {
    s->arena.bytes = arena_bytes;
}

/* Copy the addresses of the blocks of the best sequence, in the order in which they begin; return
 * how many there are. */
int32_t sequence_best_addresses(const Search *s, double *addresses) {
    if (addresses && s->best_block_count) {
        memcpy(addresses, s->best_lows, sizeof *addresses * (size_t)s->best_block_count);
    }
    return s->best_block_count;
}

/* The best sequence so far within the budget and the deadline: return its length (0: none) and
 * copy its events and cost. */
int32_t sequence_best(const Search *s, int32_t *events, double *cost) {
    *cost = s->best_cost;
    memcpy(events, s->best, sizeof *events * (size_t)s->best_length);
    return s->best_length;
}
