/* Addresses of what a sequence has in RAM: first fit in a few orders, changed at random. */
#include "sequence.h"

#include <math.h>
#include <string.h>

/* Orders to begin with, and changes of each that are tried, in pairs of blocks at most. */
enum { ORDERS = 3, MOST_CHANGES = 80, MOST_PAIRS = 800000 };

static void add_block(Arena *a, int32_t from, int32_t to, double bytes) {
    if (a->count == a->capacity) {
        size_t room = 2 * (size_t)a->capacity + 64;
        a->blocks = resized(a->blocks, room * sizeof *a->blocks);
        a->order = resized(a->order, room * sizeof *a->order);
        a->placed = resized(a->placed, room * sizeof *a->placed);
        a->capacity = (int32_t)room;
    }
    a->blocks[a->count++] = (Block){from, to, bytes, 0};
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
    Arena *a = &s->arena;
    a->count = 0;
    for (int32_t at = 0; at < s->length; at++) {
        int32_t event = s->event[s->sequence[at]];
        for (int32_t i = p->write_start[event]; i < p->write_start[event + 1]; i++) {
            int32_t tensor = p->writes[i], before = p->place_of[i];
            if (p->bytes[tensor] <= 0) {
                continue;
            }
            int32_t to = used_until(s, tensor, at);
            if (before >= 0 && p->bytes[before] > 0) {
                Block *block = &a->blocks[a->block_of[before]];
                block->to = to;
                block->bytes = fmax(block->bytes, p->bytes[tensor]);
                a->block_of[tensor] = a->block_of[before];
            } else {
                a->block_of[tensor] = a->count;
                add_block(a, at, to, p->bytes[tensor]);
            }
        }
        if (p->workspace_bytes[event] > 0) {
            add_block(a, at, at, p->workspace_bytes[event]);
        }
    }
}

static double rank_of(const Block *block, int by) {
    double life = block->to - block->from + 1;
    return by == 0 ? block->bytes : by == 1 ? life : life * block->bytes;
}

/* Order the blocks by size, by lifetime, or by their product, largest first. */
static void order_blocks(Arena *a, int by) {
    for (int32_t i = 0; i < a->count; i++) {
        double own = rank_of(&a->blocks[i], by);
        int32_t at = i;
        for (; at > 0 && rank_of(&a->blocks[a->order[at - 1]], by) < own; at--) {
            a->order[at] = a->order[at - 1];
        }
        a->order[at] = i;
    }
}

/* Place the blocks in order, each as low as it fits. Return how many could be placed. */
static int32_t place_blocks(Arena *a) {
    for (int32_t i = 0; i < a->count; i++) {
        Block *block = &a->blocks[a->order[i]];
        block->low = 0;
        for (int32_t k = 0; k < i; k++) {
            const Block *other = &a->blocks[a->placed[k]];
            if (other->from > block->to || block->from > other->to) {
                continue;
            }
            if (other->low >= block->low + block->bytes) {
                break;
            }
            block->low = fmax(block->low, other->low + other->bytes);
        }
        if (block->low + block->bytes > a->bytes) {
            return i;
        }
        int32_t at = i;
        for (; at > 0 && a->blocks[a->placed[at - 1]].low > block->low; at--) {
            a->placed[at] = a->placed[at - 1];
        }
        a->placed[at] = a->order[i];
    }
    return a->count;
}

/* A block that does not fit moves forward at random. */
int has_addresses(Search *s) {
    Arena *a = &s->arena;
    list_blocks(s);
    int64_t pairs = (int64_t)a->count * a->count;
    for (int by = 0; by < ORDERS; by++) {
        order_blocks(a, by);
        for (int64_t change = 0; change <= MOST_CHANGES && change * pairs <= MOST_PAIRS; change++) {
            int32_t placed = place_blocks(a);
            if (placed == a->count) {
                return 1;
            }
            if (placed == 0) {
                return 0;
            }
            int32_t to = below(s, placed), block = a->order[placed];
            memmove(a->order + to + 1, a->order + to, sizeof *a->order * (size_t)(placed - to));
            a->order[to] = block;
        }
    }
    return 0;
}
