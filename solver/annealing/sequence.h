/* The state of simulated annealing over sequences of events, which annealing/__init__.py defines.
 *
 * The state is one sequence. Each tensor has a list of the nodes (occurrences of events) that write
 * or use it, in order. It is live from a node that writes it to the last node that uses that value.
 * Live bytes are stored in slots, two per position: during the event, and after it. A change of the
 * sequence affects only the tensors of the changed events. Its effect on memory is found by
 * subtracting their live ranges before the change and adding them after it.
 *
 * sequence.c changes the sequence, moves.c draws changes at random, blocks.c looks for addresses,
 * and search.c anneals and has what Python calls.
 */
#pragma once

#include <stdint.h>
#include <stdlib.h>

typedef struct {
    int32_t event_count, tensor_count, op_count;
    const int32_t *read_start, *reads; /* of each event: reads[read_start[e] .. read_start[e+1]] */
    const int32_t *write_start, *writes;
    const int32_t *consume_start, *consumes;
    const double *cost, *seconds, *extra_bytes; /* of each event */
    const uint8_t *repeatable;                  /* may occur more than once */
    const uint8_t *in_storage; /* of each tensor: whether storage has a copy from the beginning */
    const double *bytes, *save_cost, *save_seconds; /* of each tensor */
    const int32_t *compute_of, *page_in_of;         /* event that writes each tensor, -1: none */
    const double *workspace_bytes;                  /* of each event */
    const int32_t *place_of; /* of each write: the tensor in whose place it is, -1: none */
    double ram_bytes, deadline_s;
    double base_cost, base_seconds; /* of unavoidable page-outs */
} Problem;

typedef struct {
    int32_t *nodes;
    int32_t count, capacity;
} List;

typedef struct {
    int32_t kind, node, event, position;
} Change;

/* What takes bytes of the arena from one position to another, both included, and its address. */
typedef struct {
    int32_t from, to;
    double bytes, low;
} Block;

typedef struct {
    double
        bytes; /* of the arena in which the best sequence must have addresses; 0: it needs none */
    Block *blocks;
    int32_t count, capacity;
    int32_t *order, *placed; /* numbers of blocks */
    int32_t *block_of;       /* of each tensor that was written */
} Arena;

typedef struct {
    Problem problem;
    uint64_t random;
    int free_order;
    int32_t length, capacity;
    int32_t *sequence, *event, *position; /* by position; by node; by node */
    int32_t *spare, spare_count;
    List *of_tensor;
    int32_t *first, *occurrences; /* by op; by event */
    double *slots;
    double cost, seconds, excess;
    int64_t broken; /* number of uses of a tensor that is not in RAM, or not in storage */
    Change *changes;
    int32_t change_count, change_capacity;
    const uint8_t *barred; /* of each tensor: 1 if moves may not page it in; NULL: they may */
    double memory_weight, late_weight;
    Arena arena;
    double packing_s; /* of one call of sequence_anneal */
    int32_t *best, best_length, best_block_count, best_block_capacity;
    double best_cost, *best_lows;
} Search;

/* Functions of this library that Python does not call, some with common names. */
#pragma GCC visibility push(hidden)

/* --- random numbers ----------------------------------------------------------------------- */

static inline uint64_t draw(Search *s) {
    uint64_t x = s->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return s->random = x;
}

static inline double uniform(Search *s) {
    return (double)(draw(s) >> 11) * 0x1p-53;
}

static inline int32_t below(Search *s, int32_t n) {
    return (int32_t)(((draw(s) >> 32) * (uint64_t)n) >> 32);
}

/* --- what events do ----------------------------------------------------------------------- */

static inline int contains(const int32_t *items, int32_t from, int32_t to, int32_t item) {
    for (int32_t i = from; i < to; i++) {
        if (items[i] == item) {
            return 1;
        }
    }
    return 0;
}

static inline int makes(const Problem *p, int32_t event, int32_t tensor) {
    return contains(p->writes, p->write_start[event], p->write_start[event + 1], tensor);
}

static inline int consumes(const Problem *p, int32_t event, int32_t tensor) {
    return contains(p->consumes, p->consume_start[event], p->consume_start[event + 1], tensor);
}

static inline int is_page_in(const Search *s, int32_t event) {
    return event >= s->problem.op_count && event < s->problem.event_count - 2;
}

/* Number of nodes of a list before a position. */
static inline int32_t rank(const Search *s, const List *list, int32_t position) {
    int32_t low = 0, high = list->count;
    while (low < high) {
        int32_t middle = (low + high) / 2;
        if (s->position[list->nodes[middle]] < position) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* --- sequence.c --------------------------------------------------------------------------- */

/* Replace the sequence. Return 0 if the new one exceeds the capacity, or uses a tensor that is not
 * available. */
int set_sequence(Search *s, const int32_t *events, int32_t length);

/* Insert an event; return its node, -1 if the sequence is full. */
int32_t insert(Search *s, int32_t event, int32_t position);

void erase(Search *s, int32_t node);

/* Take back all changes since `change_count` was 0. */
void undo(Search *s);

/* Memory of a greater size; the program ends if there is none. */
void *resized(void *items, size_t bytes);

/* --- moves.c ------------------------------------------------------------------------------ */

/* Change the sequence at random; return whether a change was found. */
int move(Search *s);

/* --- blocks.c ----------------------------------------------------------------------------- */

/* Whether addresses in the arena were found: those of `arena.blocks`, in the order in which these
 * begin. */
int has_addresses(Search *s);

#pragma GCC visibility pop
