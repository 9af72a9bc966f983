/* Simulated annealing over sequences of events, which annealing/__init__.py defines.
 *
 * The state is one sequence. Each tensor has a list of the nodes (occurrences of events) that write
 * or use it, in order. It is live from a node that writes it to the last node that uses that value.
 * Live bytes are stored in slots, two per position: during the event, and after it. A change of the
 * sequence affects only the tensors of the changed events. Its effect on memory is found by
 * subtracting their live ranges before the change and adding them after it.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

/* What takes bytes of the arena from one position to another, both included. */
typedef struct {
    int32_t from, to;
    double bytes, low;
} Block;

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
    double memory_weight, late_weight, temperature;
    Change *changes;
    int32_t change_count, change_capacity;
    int32_t *best, best_length;
    double best_cost;
    const uint8_t *barred; /* of each tensor: 1 if moves may not page it in; NULL: they may */
    double arena_bytes;    /* in which the best sequence must have addresses; 0: it needs none */
    double packing_s;      /* of one call of sequence_anneal */
    Block *blocks;
    int32_t block_count, block_capacity;
    int32_t *order, *placed; /* numbers of blocks */
    int32_t *block_of;       /* of each tensor that was written */
    double *best_lows;
    int32_t best_block_count;
} Search;

/* --- random numbers ----------------------------------------------------------------------- */

static uint64_t draw(Search *s) {
    uint64_t x = s->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return s->random = x;
}

static double uniform(Search *s) {
    return (double)(draw(s) >> 11) * 0x1p-53;
}

static int32_t below(Search *s, int32_t n) {
    return (int32_t)(((draw(s) >> 32) * (uint64_t)n) >> 32);
}

/* --- live ranges -------------------------------------------------------------------------- */

static void add_range(Search *s, int32_t from, int32_t to, double bytes) {
    double *slots = s->slots, limit = s->problem.ram_bytes, change = 0;
    for (int32_t i = 2 * from; i <= 2 * to; i++) {
        double before = slots[i] - limit, after = before + bytes;
        slots[i] += bytes;
        change += (after > 0 ? after : 0) - (before > 0 ? before : 0);
    }
    s->excess += change;
}

static int contains(const int32_t *items, int32_t from, int32_t to, int32_t item) {
    for (int32_t i = from; i < to; i++) {
        if (items[i] == item) {
            return 1;
        }
    }
    return 0;
}

static int makes(const Problem *p, int32_t event, int32_t tensor) {
    return contains(p->writes, p->write_start[event], p->write_start[event + 1], tensor);
}

static int consumes(const Problem *p, int32_t event, int32_t tensor) {
    return contains(p->consumes, p->consume_start[event], p->consume_start[event + 1], tensor);
}

static int is_page_in(const Search *s, int32_t event) {
    return event >= s->problem.op_count && event < s->problem.event_count - 2;
}

/* Add (sign 1) or subtract (-1) the bytes and the broken uses of a tensor. */
static void count_tensor(Search *s, int32_t tensor, int sign) {
    const List *list = &s->of_tensor[tensor];
    double bytes = sign * s->problem.bytes[tensor];
    int32_t from = -1, to = -1;
    if (list->count && !s->problem.in_storage[tensor] && is_page_in(s, s->event[list->nodes[0]])) {
        s->broken += sign;
    }
    for (int32_t i = 0; i < list->count; i++) {
        int32_t node = list->nodes[i], at = s->position[node];
        if (makes(&s->problem, s->event[node], tensor)) {
            if (from >= 0 && bytes != 0) {
                add_range(s, from, to, bytes);
            }
            from = to = at;
        } else if (from < 0) {
            s->broken += sign;
        } else {
            to = at;
            if (consumes(&s->problem, s->event[node], tensor)) {
                if (bytes != 0) {
                    add_range(s, from, to, bytes);
                }
                from = -1;
            }
        }
    }
    if (from >= 0 && bytes != 0) {
        add_range(s, from, to, bytes);
    }
}

static void count_tensors_of(Search *s, int32_t event, int sign) {
    const Problem *p = &s->problem;
    for (int32_t i = p->read_start[event]; i < p->read_start[event + 1]; i++) {
        count_tensor(s, p->reads[i], sign);
    }
    for (int32_t i = p->write_start[event]; i < p->write_start[event + 1]; i++) {
        count_tensor(s, p->writes[i], sign);
    }
}

/* --- changes of the sequence -------------------------------------------------------------- */

/* Number of nodes of a list before a position. */
static int32_t rank(const Search *s, const List *list, int32_t position) {
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

static void list_insert(List *list, int32_t at, int32_t node) {
    if (list->count == list->capacity) {
        int32_t capacity = list->capacity ? 2 * list->capacity : 4;
        int32_t *nodes = realloc(list->nodes, sizeof *nodes * (size_t)capacity);
        if (!nodes) {
            abort();
        }
        list->nodes = nodes;
        list->capacity = capacity;
    }
    memmove(list->nodes + at + 1, list->nodes + at,
            sizeof *list->nodes * (size_t)(list->count - at));
    list->nodes[at] = node;
    list->count++;
}

static void list_remove(List *list, int32_t node) {
    int32_t at = 0;
    while (list->nodes[at] != node) {
        at++;
    }
    list->count--;
    memmove(list->nodes + at, list->nodes + at + 1,
            sizeof *list->nodes * (size_t)(list->count - at));
}

static void each_tensor(Search *s, int32_t event, int32_t node, int32_t position, int insert) {
    const Problem *p = &s->problem;
    const int32_t *starts[2] = {p->read_start, p->write_start}, *items[2] = {p->reads, p->writes};
    for (int side = 0; side < 2; side++) {
        for (int32_t i = starts[side][event]; i < starts[side][event + 1]; i++) {
            List *list = &s->of_tensor[items[side][i]];
            if (insert) {
                list_insert(list, rank(s, list, position), node);
            } else {
                list_remove(list, node);
            }
        }
    }
}

static void count_cost(Search *s, int32_t event, int sign) {
    const Problem *p = &s->problem;
    s->cost += sign * p->cost[event];
    s->seconds += sign * p->seconds[event];
    s->occurrences[event] += sign;
    if (is_page_in(s, event) && s->occurrences[event] == (sign > 0)) {
        int32_t tensor = p->writes[p->write_start[event]];
        s->cost += sign * p->save_cost[tensor];
        s->seconds += sign * p->save_seconds[tensor];
    }
}

static void put_in(Search *s, int32_t node, int32_t event, int32_t position) {
    const Problem *p = &s->problem;
    count_tensors_of(s, event, -1);
    int32_t tail = s->length - position;
    memmove(s->sequence + position + 1, s->sequence + position, sizeof *s->sequence * (size_t)tail);
    memmove(s->slots + 2 * position + 2, s->slots + 2 * position,
            sizeof *s->slots * 2 * (size_t)tail);
    /* Tensors that are live across this position are live during and after the new event. */
    double across = s->slots[2 * position - 1], over = across - p->ram_bytes;
    s->slots[2 * position] = s->slots[2 * position + 1] = across;
    if (over > 0) {
        s->excess += 2 * over;
    }
    s->length++;
    s->sequence[position] = node;
    s->event[node] = event;
    for (int32_t i = position; i < s->length; i++) {
        s->position[s->sequence[i]] = i;
    }
    each_tensor(s, event, node, position, 1);
    add_range(s, position, position, p->extra_bytes[event]);
    count_cost(s, event, 1);
    count_tensors_of(s, event, 1);
}

static void take_out(Search *s, int32_t node) {
    const Problem *p = &s->problem;
    int32_t event = s->event[node], position = s->position[node];
    count_tensors_of(s, event, -1);
    each_tensor(s, event, node, position, 0);
    add_range(s, position, position, -p->extra_bytes[event]);
    for (int slot = 0; slot < 2; slot++) {
        double over = s->slots[2 * position + slot] - p->ram_bytes;
        if (over > 0) {
            s->excess -= over;
        }
    }
    s->length--;
    int32_t tail = s->length - position;
    memmove(s->sequence + position, s->sequence + position + 1, sizeof *s->sequence * (size_t)tail);
    memmove(s->slots + 2 * position, s->slots + 2 * position + 2,
            sizeof *s->slots * 2 * (size_t)tail);
    for (int32_t i = position; i < s->length; i++) {
        s->position[s->sequence[i]] = i;
    }
    count_cost(s, event, -1);
    count_tensors_of(s, event, 1);
}

/* --- changes that can be undone ----------------------------------------------------------- */

enum { INSERTED, REMOVED };

static void note_change(Search *s, int32_t kind, int32_t node, int32_t event, int32_t position) {
    if (s->change_count == s->change_capacity) {
        int32_t capacity = 2 * s->change_capacity + 16;
        Change *changes = realloc(s->changes, sizeof *changes * (size_t)capacity);
        if (!changes) {
            abort();
        }
        s->changes = changes;
        s->change_capacity = capacity;
    }
    s->changes[s->change_count++] = (Change){kind, node, event, position};
}

/* Insert an event; return its node, -1 if the sequence is full. */
static int32_t insert(Search *s, int32_t event, int32_t position) {
    if (s->spare_count == 0) {
        return -1;
    }
    int32_t node = s->spare[--s->spare_count];
    put_in(s, node, event, position);
    note_change(s, INSERTED, node, event, position);
    return node;
}

static void erase(Search *s, int32_t node) {
    int32_t event = s->event[node], position = s->position[node];
    take_out(s, node);
    s->spare[s->spare_count++] = node;
    note_change(s, REMOVED, node, event, position);
}

static void undo(Search *s) {
    while (s->change_count > 0) {
        Change *change = &s->changes[--s->change_count];
        if (change->kind == INSERTED) {
            take_out(s, change->node);
            s->spare[s->spare_count++] = change->node;
        } else {
            s->spare_count--; /* this node was the last one added to the spare nodes */
            put_in(s, change->node, change->event, change->position);
        }
    }
}

/* --- moves -------------------------------------------------------------------------------- */

static int is_fixed(const Search *s, int32_t node) {
    int32_t event = s->event[node];
    return event >= s->problem.event_count - 2 ||
           (!s->free_order && event < s->problem.op_count && s->first[event] == node);
}

/* Whether a node may be removed: a recomputation or a page-in. */
static int is_extra(const Search *s, int32_t node) {
    int32_t event = s->event[node];
    return is_page_in(s, event) || (s->occurrences[event] > 1 && !is_fixed(s, node));
}

/* Position of the last node of a tensor before a position, -1 if none exists. */
static int32_t previous_touch(const Search *s, int32_t tensor, int32_t position) {
    const List *list = &s->of_tensor[tensor];
    int32_t at = rank(s, list, position);
    return at > 0 ? s->position[list->nodes[at - 1]] : -1;
}

/* The event that pages a tensor in; -1 if there is none, or the tensor is barred. */
static int32_t page_in_of(const Search *s, int32_t tensor) {
    return s->barred && s->barred[tensor] ? -1 : s->problem.page_in_of[tensor];
}

/* Limits of the chance that a tensor is recomputed, whatever that and paging it in cost: the dearer
 * one may still be better, because of what else it needs. */
#define LEAST_SHARE 0.1
#define MOST_SHARE 0.95

/* A random event that recomputes a tensor or pages it in, the cheaper one more often; -1 if none
 * may be repeated. */
static int32_t random_source(Search *s, int32_t tensor) {
    int32_t compute = s->problem.compute_of[tensor], page_in = page_in_of(s, tensor);
    if (compute >= 0 && !s->problem.repeatable[compute]) {
        compute = -1;
    }
    if (compute < 0 || page_in < 0) {
        return compute < 0 ? page_in : compute;
    }
    const Problem *p = &s->problem;
    double computing = p->cost[compute], paging = p->cost[page_in];
    if (s->occurrences[page_in] == 0) {
        paging += p->save_cost[tensor];
    }
    double share = computing + paging > 0 ? paging / (computing + paging) : 0.5;
    return uniform(s) < fmin(fmax(share, LEAST_SHARE), MOST_SHARE) ? compute : page_in;
}

/* Recompute a tensor or page it in before a position, and at random the tensors that this reads. */
static void restore(Search *s, int32_t tensor, int32_t position, int depth) {
    int32_t event = random_source(s, tensor);
    if (event < 0) {
        return;
    }
    int32_t node = insert(s, event, position);
    if (node < 0 || depth == 0) {
        return;
    }
    const Problem *p = &s->problem;
    /* On average fewer than one tensor is added, so that chains end. */
    double chance = 0.7 / (p->read_start[event + 1] - p->read_start[event] + 0.5);
    for (int32_t i = p->read_start[event]; i < p->read_start[event + 1]; i++) {
        int32_t read = p->reads[i], at = s->position[node];
        int32_t before = previous_touch(s, read, at);
        if (before >= 0 && at - before > 2 && p->bytes[read] > 0 && uniform(s) < chance) {
            restore(s, read, at, depth - 1);
        }
    }
}

/* Move: split a live range by recomputing or paging in, preferably where memory is exceeded. */
static int split(Search *s) {
    const Problem *p = &s->problem;
    int32_t crossing = -1;
    if (s->excess > 0 && draw(s) & (3u << 20)) {
        for (int attempt = 0; attempt < 16 && crossing < 0; attempt++) {
            int32_t position = below(s, s->length);
            if (s->slots[2 * position] > p->ram_bytes) {
                crossing = position;
            }
        }
    }
    for (int attempt = 0; attempt < 8; attempt++) {
        int32_t low = crossing < 0 ? 1 : crossing + 1;
        if (low >= s->length) {
            return 0;
        }
        int32_t position = low + below(s, s->length - low), event = s->event[s->sequence[position]];
        int32_t reads = p->read_start[event + 1] - p->read_start[event];
        if (reads == 0) {
            continue;
        }
        int32_t tensor = p->reads[p->read_start[event] + below(s, reads)];
        int32_t before = previous_touch(s, tensor, position);
        if (before < 0 || position - before < 2 || (crossing >= 0 && before >= crossing) ||
            p->bytes[tensor] == 0) {
            continue;
        }
        int32_t at = position;
        if ((draw(s) & (7u << 20)) == 0) {
            at = before + 1 + below(s, position - before);
        }
        restore(s, tensor, at, 12);
        return s->change_count > 0;
    }
    return 0;
}

/* Whether a removable node writes no tensor that is used before it is written again. */
static int is_useless(const Search *s, int32_t node) {
    const Problem *p = &s->problem;
    int32_t event = s->event[node];
    if (!is_extra(s, node)) {
        return 0;
    }
    for (int32_t i = p->write_start[event]; i < p->write_start[event + 1]; i++) {
        int32_t tensor = p->writes[i];
        const List *list = &s->of_tensor[tensor];
        int32_t next = rank(s, list, s->position[node]) + 1;
        if (next < list->count && !makes(p, s->event[list->nodes[next]], tensor)) {
            return 0;
        }
    }
    return 1;
}

/* Remove a node, and the removable nodes that become useless. */
static void drop(Search *s, int32_t node) {
    const Problem *p = &s->problem;
    int32_t event = s->event[node], position = s->position[node];
    erase(s, node);
    for (int32_t i = p->read_start[event]; i < p->read_start[event + 1]; i++) {
        const List *list = &s->of_tensor[p->reads[i]];
        int32_t at = rank(s, list, position);
        if (at > 0 && is_useless(s, list->nodes[at - 1])) {
            int32_t length = s->length;
            drop(s, list->nodes[at - 1]);
            position -= length - s->length;
        }
    }
}

/* A random node of a kind; -1 if none was met. */
static int32_t random_node(Search *s, int (*is_wanted)(const Search *, int32_t)) {
    for (int attempt = 0; attempt < 32; attempt++) {
        int32_t node = s->sequence[1 + below(s, s->length - 2)];
        if (is_wanted(s, node)) {
            return node;
        }
    }
    return -1;
}

static int32_t random_extra(Search *s) {
    return random_node(s, is_extra);
}

/* Move: remove a recomputation or a page-in. */
static int merge(Search *s) {
    int32_t node = random_extra(s);
    if (node < 0) {
        return 0;
    }
    drop(s, node);
    return 1;
}

/* Move: replace a recomputation with a page-in, or the reverse. */
static int exchange(Search *s) {
    const Problem *p = &s->problem;
    int32_t node = random_extra(s);
    if (node < 0) {
        return 0;
    }
    int32_t event = s->event[node], writes = p->write_start[event + 1] - p->write_start[event];
    int32_t tensor = p->writes[p->write_start[event] + below(s, writes)];
    int32_t other = is_page_in(s, event) ? p->compute_of[tensor] : page_in_of(s, tensor);
    if (other < 0 || !p->repeatable[other]) {
        return 0;
    }
    int32_t position = s->position[node], length = s->length;
    drop(s, node);
    insert(s, other, position - (length - 1 - s->length));
    return 1;
}

/* Move: shift an event, between the events that write its reads and those that use its writes. */
static int shift(Search *s) {
    const Problem *p = &s->problem;
    int32_t node = s->sequence[1 + below(s, s->length - 2)];
    if (!s->free_order && is_fixed(s, node)) {
        node = random_extra(s);
        if (node < 0) {
            return 0;
        }
    }
    int32_t event = s->event[node], position = s->position[node];
    int32_t low = 1, high = s->length - 2; /* allowed positions after its removal */
    if (!s->free_order && event < p->op_count) {
        low = s->position[s->first[event]] + 1;
    }
    for (int32_t i = p->read_start[event]; i < p->read_start[event + 1]; i++) {
        const List *list = &s->of_tensor[p->reads[i]];
        int32_t at = rank(s, list, position) - 1;
        while (at >= 0 && !makes(p, s->event[list->nodes[at]], p->reads[i])) {
            at--;
        }
        if (at >= 0 && s->position[list->nodes[at]] + 1 > low) {
            low = s->position[list->nodes[at]] + 1;
        }
    }
    for (int32_t i = p->write_start[event]; i < p->write_start[event + 1]; i++) {
        const List *list = &s->of_tensor[p->writes[i]];
        int32_t at = rank(s, list, position) + 1;
        if (at < list->count && !makes(p, s->event[list->nodes[at]], p->writes[i]) &&
            s->position[list->nodes[at]] - 1 < high) {
            high = s->position[list->nodes[at]] - 1;
        }
    }
    if (high <= low) {
        return 0;
    }
    int32_t to;
    switch (draw(s) >> 20 & 3) {
    case 0:
        to = low;
        break;
    case 1:
        to = high;
        break;
    default:
        to = low + below(s, high - low + 1);
    }
    if (to == position) {
        return 0;
    }
    erase(s, node);
    insert(s, event, to);
    return 1;
}

static int pages_in(const Search *s, int32_t node) {
    return is_page_in(s, s->event[node]);
}

/* Remove all page-ins of a tensor. */
static void forget(Search *s, int32_t tensor) {
    int32_t page_in = s->problem.page_in_of[tensor];
    const List *list = &s->of_tensor[tensor];
    for (int32_t i = list->count - 1; i >= 0; i--) {
        /* Removing one may have made others useless, and removed them. */
        if (i < list->count && s->event[list->nodes[i]] == page_in) {
            drop(s, list->nodes[i]);
        }
    }
}

/* Move: remove all page-ins of a tensor, and with them the cost of saving it. */
static int keep(Search *s) {
    int32_t node = random_node(s, pages_in);
    if (node < 0) {
        return 0;
    }
    forget(s, s->problem.writes[s->problem.write_start[s->event[node]]]);
    return 1;
}

/* Move: in place of a tensor that is paged out, page out another one that is in RAM meanwhile. */
static int trade(Search *s) {
    const Problem *p = &s->problem;
    int32_t node = random_node(s, pages_in);
    if (node < 0) {
        return 0;
    }
    int32_t tensor = p->writes[p->write_start[s->event[node]]], position = s->position[node];
    int32_t before = previous_touch(s, tensor, position);
    if (before < 0 || position - before < 2) {
        return 0;
    }
    int32_t crossing = before + 1 + below(s, position - before - 1);
    for (int attempt = 0; attempt < 16; attempt++) {
        int32_t at = crossing + 1 + below(s, s->length - crossing - 1);
        int32_t event = s->event[s->sequence[at]];
        int32_t reads = p->read_start[event + 1] - p->read_start[event];
        if (reads == 0) {
            continue;
        }
        int32_t other = p->reads[p->read_start[event] + below(s, reads)];
        int32_t touch = previous_touch(s, other, at);
        if (other == tensor || touch < 0 || touch >= crossing || page_in_of(s, other) < 0 ||
            p->bytes[other] == 0) {
            continue;
        }
        if (insert(s, page_in_of(s, other), at) < 0) {
            return 0;
        }
        if (draw(s) & (1u << 20)) {
            forget(s, tensor);
        } else {
            drop(s, node);
        }
        return 1;
    }
    return 0;
}

/* --- the search --------------------------------------------------------------------------- */

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

/* --- addresses ---------------------------------------------------------------------------- */

/* Orders to begin with, and changes of each that are tried, in pairs of blocks at most. */
enum { ORDERS = 3, MOST_CHANGES = 80, MOST_PAIRS = 800000 };

static void *resized(void *items, size_t bytes) {
    void *found = realloc(items, bytes);
    if (!found) {
        abort();
    }
    return found;
}

static void add_block(Search *s, int32_t from, int32_t to, double bytes) {
    if (s->block_count == s->block_capacity) {
        size_t room = 2 * (size_t)s->block_capacity + 64;
        s->blocks = resized(s->blocks, room * sizeof *s->blocks);
        s->order = resized(s->order, room * sizeof *s->order);
        s->placed = resized(s->placed, room * sizeof *s->placed);
        s->best_lows = resized(s->best_lows, room * sizeof *s->best_lows);
        s->block_capacity = (int32_t)room;
    }
    s->blocks[s->block_count++] = (Block){from, to, bytes, 0};
}

/* Position of the last use of the value of a tensor that is written at a position. */
static int32_t used_until(const Search *s, int32_t tensor, int32_t position) {
    const List *list = &s->of_tensor[tensor];
    int32_t to = position;
    for (int32_t i = rank(s, list, position) + 1; i < list->count; i++) {
        int32_t node = list->nodes[i], event = s->event[node];
        if (makes(&s->problem, event, tensor)) {
            break;
        }
        to = s->position[node];
        if (consumes(&s->problem, event, tensor)) {
            break;
        }
    }
    return to;
}

/* List the blocks in the order in which they begin, those of one event as it writes them, its
 * workspace last. A tensor in place of another one is in that one's block. */
static void list_blocks(Search *s) {
    const Problem *p = &s->problem;
    s->block_count = 0;
    for (int32_t at = 0; at < s->length; at++) {
        int32_t event = s->event[s->sequence[at]];
        for (int32_t i = p->write_start[event]; i < p->write_start[event + 1]; i++) {
            int32_t tensor = p->writes[i], before = p->place_of[i];
            if (p->bytes[tensor] <= 0) {
                continue;
            }
            int32_t to = used_until(s, tensor, at);
            if (before >= 0 && p->bytes[before] > 0) {
                Block *block = &s->blocks[s->block_of[before]];
                block->to = to;
                block->bytes = fmax(block->bytes, p->bytes[tensor]);
                s->block_of[tensor] = s->block_of[before];
            } else {
                s->block_of[tensor] = s->block_count;
                add_block(s, at, to, p->bytes[tensor]);
            }
        }
        if (p->workspace_bytes[event] > 0) {
            add_block(s, at, at, p->workspace_bytes[event]);
        }
    }
}

static double rank_of(const Block *block, int by) {
    double life = block->to - block->from + 1;
    return by == 0 ? block->bytes : by == 1 ? life : life * block->bytes;
}

/* Order the blocks by size, by lifetime, or by their product, largest first. */
static void order_blocks(Search *s, int by) {
    for (int32_t i = 0; i < s->block_count; i++) {
        double own = rank_of(&s->blocks[i], by);
        int32_t at = i;
        for (; at > 0 && rank_of(&s->blocks[s->order[at - 1]], by) < own; at--) {
            s->order[at] = s->order[at - 1];
        }
        s->order[at] = i;
    }
}

/* Place the blocks in order, each as low as it fits. Return how many could be placed. */
static int32_t place_blocks(Search *s) {
    for (int32_t i = 0; i < s->block_count; i++) {
        Block *block = &s->blocks[s->order[i]];
        block->low = 0;
        for (int32_t k = 0; k < i; k++) {
            const Block *other = &s->blocks[s->placed[k]];
            if (other->from > block->to || block->from > other->to) {
                continue;
            }
            if (other->low >= block->low + block->bytes) {
                break;
            }
            block->low = fmax(block->low, other->low + other->bytes);
        }
        if (block->low + block->bytes > s->arena_bytes) {
            return i;
        }
        int32_t at = i;
        for (; at > 0 && s->blocks[s->placed[at - 1]].low > block->low; at--) {
            s->placed[at] = s->placed[at - 1];
        }
        s->placed[at] = s->order[i];
    }
    return s->block_count;
}

/* Whether addresses in the arena were found. A block that does not fit moves forward at random. */
static int has_addresses(Search *s) {
    list_blocks(s);
    int64_t pairs = (int64_t)s->block_count * s->block_count;
    for (int by = 0; by < ORDERS; by++) {
        order_blocks(s, by);
        for (int64_t change = 0; change <= MOST_CHANGES && change * pairs <= MOST_PAIRS; change++) {
            int32_t placed = place_blocks(s);
            if (placed == s->block_count) {
                return 1;
            }
            if (placed == 0) {
                return 0;
            }
            int32_t to = below(s, placed), block = s->order[placed];
            memmove(s->order + to + 1, s->order + to, sizeof *s->order * (size_t)(placed - to));
            s->order[to] = block;
        }
    }
    return 0;
}

/* Whether the sequence is within the budget and the deadline, with addresses if it needs some. At
 * most half of the time since `began` goes into looking for these: a sequence may be passed over. */
static int is_acceptable(Search *s, double began) {
    if (!is_feasible(s)) {
        return 0;
    }
    if (s->arena_bytes <= 0) {
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
    s->best_block_count = s->arena_bytes > 0 ? s->block_count : 0;
    for (int32_t i = 0; i < s->best_block_count; i++) {
        s->best_lows[i] = s->blocks[i].low;
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
        s->change_count = 0;
        int32_t kind = below(s, 32);
        int changed = kind < 9    ? split(s)
                      : kind < 17 ? merge(s)
                      : kind < 19 ? exchange(s)
                      : kind < 22 ? trade(s)
                      : kind < 23 ? keep(s)
                                  : shift(s);
        if (!changed) {
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

/* Restart from a sequence of events, including the beginning and the end. Moves do
 * not page in tensors that are `barred` (NULL: none); the array must outlive the annealing that
 * follows. Return 0 if the sequence exceeds the capacity, or uses a tensor that is not available. */
int32_t sequence_restart(Search *s, const int32_t *events, int32_t length, const uint8_t *barred) {
    s->barred = barred;
    while (s->length > 0) {
        take_out(s, s->sequence[s->length - 1]);
    }
    s->spare_count = 0;
    for (int32_t node = s->capacity - 1; node >= 0; node--) {
        s->spare[s->spare_count++] = node;
    }
    s->cost = s->problem.base_cost;
    s->seconds = s->problem.base_seconds;
    s->excess = 0;
    s->broken = 0;
    s->memory_weight = s->late_weight = FIRST_WEIGHT;
    for (int32_t op = 0; op < s->problem.op_count; op++) {
        s->first[op] = -1;
    }
    for (int32_t i = 0; i < length && s->spare_count > 0; i++) {
        int32_t node = s->spare[--s->spare_count], event = events[i];
        s->sequence[i] = node;
        s->event[node] = event;
        s->position[node] = i;
        s->slots[2 * i] = s->slots[2 * i + 1] = 0;
        s->length = i + 1;
        if (event < s->problem.op_count && s->first[event] < 0) {
            s->first[event] = node;
        }
        each_tensor(s, event, node, i, 1);
        count_cost(s, event, 1);
    }
    for (int32_t i = 0; i < s->length; i++) {
        add_range(s, i, i, s->problem.extra_bytes[s->event[s->sequence[i]]]);
    }
    for (int32_t tensor = 0; tensor < s->problem.tensor_count; tensor++) {
        count_tensor(s, tensor, 1);
    }
    if (s->broken || length > s->length) {
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
    free(s->blocks);
    free(s->order);
    free(s->placed);
    free(s->block_of);
    free(s->best_lows);
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
    s->block_of = calloc((size_t)problem->tensor_count + 1, sizeof *s->block_of);
    s->first = calloc((size_t)problem->op_count + 1, sizeof *s->first);
    s->occurrences = calloc((size_t)problem->event_count, sizeof *s->occurrences);
    if (!s->sequence || !s->event || !s->position || !s->spare || !s->best || !s->slots ||
        !s->of_tensor || !s->block_of || !s->first || !s->occurrences) {
        sequence_close(s);
        return NULL;
    }
    return s;
}

/* Limit the RAM from the next restart on. */
void sequence_limit_ram(Search *s, double ram_bytes) {
    s->problem.ram_bytes = ram_bytes;
}

/* From now on, the best sequence needs addresses in an arena of so many bytes. */
void sequence_pack(Search *s, double arena_bytes) {
    s->arena_bytes = arena_bytes;
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
