/* Random changes of a sequence: the moves of annealing. */
#include "sequence.h"

#include <math.h>

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

/* Longest chain of recomputations that one move inserts, and how many reads of each are restored on
 * average although they could stay in RAM: below 1, so that chains end. */
enum { MOST_DEPTH = 12 };
#define RESTORED 0.75

static void restore_reads(Search *s, int32_t node, int depth);

/* Recompute a tensor or page it in before a position, and what this reads as `restore_reads` does. */
static void restore(Search *s, int32_t tensor, int32_t position, int depth) {
    int32_t event = random_source(s, tensor);
    if (event >= 0) {
        int32_t node = insert(s, event, position);
        if (node >= 0 && depth > 0) {
            restore_reads(s, node, depth - 1);
        }
    }
}

/* Whether an op has overwritten a tensor that a new node reads, or nothing has brought it in yet. */
static int is_gone(const Search *s, int32_t tensor, int32_t node) {
    const List *list = &s->of_tensor[tensor];
    int32_t at = rank(s, list, s->position[node]);
    return at == 0 || consumes(&s->problem, s->event[list->nodes[at - 1]], tensor);
}

/* Whether a tensor that a new node reads is in RAM for a later node anyway. */
static int is_used_later(const Search *s, int32_t tensor, int32_t node) {
    const List *list = &s->of_tensor[tensor];
    int32_t next = rank(s, list, s->position[node]) + 1;
    return next < list->count && !makes(&s->problem, s->event[list->nodes[next]], tensor);
}

/* Restore what a new node reads: all that is gone, and at random what is in RAM for this node only,
 * RESTORED of these on average. */
static void restore_reads(Search *s, int32_t node, int depth) {
    const Problem *p = &s->problem;
    int32_t event = s->event[node], from = p->read_start[event], to = p->read_start[event + 1];
    int32_t only_here = 0;
    for (int32_t i = from; i < to; i++) {
        only_here += !is_gone(s, p->reads[i], node) && !is_used_later(s, p->reads[i], node);
    }
    for (int32_t i = from; i < to; i++) {
        int32_t read = p->reads[i], at = s->position[node];
        if (is_gone(s, read, node)) {
            restore(s, read, at, depth);
        } else if (!is_used_later(s, read, node) && p->bytes[read] > 0 &&
                   at - previous_touch(s, read, at) > 2 && uniform(s) < RESTORED / only_here) {
            restore(s, read, at, depth);
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
        restore(s, tensor, at, MOST_DEPTH);
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
    node = insert(s, other, position - (length - 1 - s->length));
    if (node >= 0) {
        restore_reads(s, node, MOST_DEPTH);
    }
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

int move(Search *s) {
    s->change_count = 0;
    int32_t kind = below(s, 32);
    return kind < 9    ? split(s)
           : kind < 17 ? merge(s)
           : kind < 19 ? exchange(s)
           : kind < 22 ? trade(s)
           : kind < 23 ? keep(s)
                       : shift(s);
}
