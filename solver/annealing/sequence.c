/* Changes of a sequence, and what follows from them: live bytes, cost, time, broken uses. */
#include "sequence.h"

#include <string.h>

void *resized(void *items, size_t bytes) {
    void *found = realloc(items, bytes);
    if (!found) {
        abort();
    }
    return found;
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

static void list_insert(List *list, int32_t at, int32_t node) {
    if (list->count == list->capacity) {
        int32_t capacity = list->capacity ? 2 * list->capacity : 4;
        list->nodes = resized(list->nodes, sizeof *list->nodes * (size_t)capacity);
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
        s->changes = resized(s->changes, sizeof *s->changes * (size_t)capacity);
        s->change_capacity = capacity;
    }
    s->changes[s->change_count++] = (Change){kind, node, event, position};
}

int32_t insert(Search *s, int32_t event, int32_t position) {
    if (s->spare_count == 0) {
        return -1;
    }
    int32_t node = s->spare[--s->spare_count];
    put_in(s, node, event, position);
    note_change(s, INSERTED, node, event, position);
    return node;
}

void erase(Search *s, int32_t node) {
    int32_t event = s->event[node], position = s->position[node];
    take_out(s, node);
    s->spare[s->spare_count++] = node;
    note_change(s, REMOVED, node, event, position);
}

void undo(Search *s) {
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

/* --- a new sequence ----------------------------------------------------------------------- */

int set_sequence(Search *s, const int32_t *events, int32_t length) {
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
    return !s->broken && length <= s->length;
}
