/* Barriers by clock, as text: in an ARRIVE "3 4 -" is of three workers, of which the last one has
 * returned. A process in the place of a lost one reads "barriers 7;0 2 3 5;3 7\n": seven barriers
 * were passed; its first worker called two at clock 0 and five at clock 3.
 *
 * What is kept is bounded by how far the workers of one node are ahead of one another. When they
 * come to a barrier, all parts have heard the lowest of their clocks, because the node has fenced
 * behind it. So a process in the place of theirs begins with this clock at least, and barriers at
 * lower ones need not be told apart.
 *
 * Threads: see the header. */
#include "engine/control/told_barriers.h"

#include <string.h>

#define BEGIN "barriers "

/* Barriers that a worker has called at the same clock. */
typedef struct {
    uint64_t clock, n;
} Called;

typedef struct {
    uint32_t n_workers;
    GArray **called;    /* of Called, by local rank */
    uint64_t *now;      /* in which all of them are, by local rank */
    bool is_in_barrier; /* `now` holds */
} OfNode;

struct BarrierRecord {
    uint32_t n_nodes;
    OfNode nodes[];
};

void told_barrier_write(GString *text, uint64_t clock)
{
    const char *const blank = text->len > 0 ? " " : "";

    if (clock == BARRIER_RETURNED)
        g_string_append_printf(text, "%s-", blank);
    else
        g_string_append_printf(text, "%s%" G_GUINT64_FORMAT, blank, clock);
}

BarrierRecord *barrier_record_new(uint32_t n_nodes, const uint32_t *workers_of)
{
    BarrierRecord *const record = g_malloc0(sizeof *record + n_nodes * sizeof record->nodes[0]);

    record->n_nodes = n_nodes;
    for (uint32_t i = 0; i < n_nodes; i++) {
        OfNode *const it = &record->nodes[i];

        it->n_workers = workers_of[i];
        it->now = g_new(uint64_t, it->n_workers + 1);
        it->called = g_new(GArray *, it->n_workers);
        for (uint32_t j = 0; j < it->n_workers; j++)
            it->called[j] = g_array_new(FALSE, FALSE, sizeof(Called));
    }
    return record;
}

void barrier_record_free(BarrierRecord *record)
{
    for (uint32_t i = 0; record != NULL && i < record->n_nodes; i++) {
        for (uint32_t j = 0; j < record->nodes[i].n_workers; j++)
            g_array_unref(record->nodes[i].called[j]);
        g_free(record->nodes[i].called);
        g_free(record->nodes[i].now);
    }
    g_free(record);
}

bool barrier_record_arrive(BarrierRecord *record, uint32_t node, const char *clocks)
{
    OfNode *const it = &record->nodes[node];
    g_auto(GStrv) words = g_strsplit(clocks != NULL ? clocks : "", " ", -1);

    if (g_strv_length(words) != it->n_workers)
        return false;
    g_autofree uint64_t *now = g_new(uint64_t, it->n_workers + 1); /* not NULL */
    for (uint32_t j = 0; j < it->n_workers; j++) {
        guint64 clock = BARRIER_RETURNED;

        if (strcmp(words[j], "-") != 0 &&
            !g_ascii_string_to_unsigned(words[j], 10, 0, BARRIER_RETURNED - 1, &clock, NULL))
            return false;
        now[j] = clock;
    }
    memcpy(it->now, now, it->n_workers * sizeof *now);
    it->is_in_barrier = true;
    return true;
}

static void call_at(GArray *called, uint64_t clock, uint64_t n)
{
    Called *const last = called->len == 0 ? NULL : &g_array_index(called, Called, called->len - 1);

    if (last != NULL && last->clock == clock)
        last->n += n;
    else
        g_array_append_val(called, ((Called){ clock, n }));
}

/* Counts as one what was called at clocks below this: where they begin, they are not told apart. */
static void join_below(GArray *called, uint64_t clock)
{
    guint n = 0;

    while (n < called->len && g_array_index(called, Called, n).clock < clock)
        n++;
    if (n < 2)
        return;
    for (guint i = 0; i + 1 < n; i++)
        g_array_index(called, Called, n - 1).n += g_array_index(called, Called, i).n;
    g_array_remove_range(called, 0, n - 1);
}

static void pass(OfNode *it)
{
    uint64_t lowest = BARRIER_RETURNED;

    it->is_in_barrier = false;
    for (uint32_t j = 0; j < it->n_workers; j++)
        lowest = MIN(lowest, it->now[j]);
    for (uint32_t j = 0; j < it->n_workers; j++) {
        if (it->now[j] != BARRIER_RETURNED)
            call_at(it->called[j], it->now[j], 1);
        join_below(it->called[j], lowest);
    }
}

void barrier_record_pass(BarrierRecord *record)
{
    for (uint32_t i = 0; i < record->n_nodes; i++)
        if (record->nodes[i].is_in_barrier)
            pass(&record->nodes[i]);
}

void barrier_record_lose(BarrierRecord *record, uint32_t node)
{
    record->nodes[node].is_in_barrier = false;
}

void barrier_record_write(const BarrierRecord *record, uint32_t node, uint64_t round, GString *text)
{
    const OfNode *const it = &record->nodes[node];

    g_string_append_printf(text, BEGIN "%" G_GUINT64_FORMAT, round);
    for (uint32_t j = 0; j < it->n_workers; j++)
        for (guint i = 0; i == 0 || i < it->called[j]->len; i++) {
            g_string_append_c(text, i == 0 ? ';' : ' ');
            if (i == it->called[j]->len)
                continue; /* it has called none */
            const Called *const called = &g_array_index(it->called[j], Called, i);
            g_string_append_printf(text, "%" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT, called->clock,
                                   called->n);
        }
    g_string_append_c(text, '\n');
}

/* Of pairs of a clock and a number, the sum of those at lower clocks than this one. */
static bool count_below(const char *pairs, uint64_t clock, uint64_t *sum)
{
    g_auto(GStrv) words = g_strsplit(pairs, " ", -1);
    guint64 at, n;

    *sum = 0;
    if (g_strv_length(words) % 2 != 0)
        return false;
    for (guint i = 0; words[i] != NULL; i += 2) {
        if (!g_ascii_string_to_unsigned(words[i], 10, 0, UINT64_MAX, &at, NULL) ||
            !g_ascii_string_to_unsigned(words[i + 1], 10, 1, UINT64_MAX, &n, NULL))
            return false;
        *sum += at < clock ? n : 0;
    }
    return true;
}

bool told_barriers_read(const char *text, const uint64_t *clocks, uint32_t n, uint64_t *round,
                        uint64_t *left)
{
    const size_t size = strlen(text);
    guint64 passed;

    if (size == 0) {
        *round = 0;
        memset(left, 0, n * sizeof *left);
        return true;
    }
    if (!g_str_has_prefix(text, BEGIN) || text[size - 1] != '\n')
        return false;
    g_autofree char *line = g_strndup(text + strlen(BEGIN), size - strlen(BEGIN) - 1);
    g_auto(GStrv) fields = g_strsplit(line, ";", -1);
    g_autofree uint64_t *counts = g_new(uint64_t, n + 1);
    if (g_strv_length(fields) != n + 1 ||
        !g_ascii_string_to_unsigned(fields[0], 10, 0, UINT64_MAX, &passed, NULL))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        if (!count_below(fields[i + 1], clocks[i], &counts[i]) || counts[i] > passed)
            return false;
        counts[i] = passed - counts[i];
    }
    *round = passed;
    memcpy(left, counts, n * sizeof *left);
    return true;
}

static void walk_called(StateWalk *walk, void *element)
{
    Called *const called = element;

    WALK(walk, called->clock);
    WALK(walk, called->n);
}

void barrier_record_walk(StateWalk *walk, BarrierRecord *record)
{
    for (uint32_t i = 0; i < record->n_nodes; i++) {
        OfNode *const it = &record->nodes[i];

        for (uint32_t j = 0; j < it->n_workers; j++)
            walk_array(walk, it->called[j], walk_called);
        WALK(walk, it->is_in_barrier);
        if (!it->is_in_barrier && walk_reads(walk))
            memset(it->now, 0, it->n_workers * sizeof *it->now);
        if (it->is_in_barrier)
            walk_u64s(walk, it->now, it->n_workers);
    }
}
