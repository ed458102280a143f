#include "tests/support/engine/trace_file.h"

#include <check.h>
#include <string.h>

#include "tests/support/runner.h"

static const char *phase_of(JsonObject *event)
{
    return json_object_get_string_member(event, "ph");
}

static const char *name_of(JsonObject *event)
{
    return json_object_get_string_member(event, "name");
}

double trace_time(JsonObject *event)
{
    return json_object_get_double_member(event, "ts");
}

static double duration_of(JsonObject *event)
{
    return *phase_of(event) == 'X' ? json_object_get_double_member(event, "dur") : 0;
}

static void check_event(JsonObject *event)
{
    const char *const phase = phase_of(event);

    ck_assert_ptr_nonnull(phase);
    ck_assert_ptr_nonnull(name_of(event));
    ck_assert(json_object_has_member(event, "pid") && json_object_has_member(event, "tid"));
    if (*phase == 'M')
        return;
    require_msg(trace_time(event) > 0, "%s has no time", name_of(event));
    require_msg(duration_of(event) >= 0, "%s ends before it begins", name_of(event));
    ck_assert(strchr("ben", *phase) == NULL || json_object_get_string_member(event, "id") != NULL);
}

/* Where an event belongs. (transfer full) */
static char *track_of(JsonObject *event)
{
    return *phase_of(event) == 'X'
               ? g_strdup_printf("%" G_GINT64_FORMAT, json_object_get_int_member(event, "pid"))
               : g_strdup(json_object_get_string_member(event, "id"));
}

/* By time; of calls that begin together the longer one first. The rest stays in order. */
static int compare(const void *a, const void *b, void *unused)
{
    JsonObject *const left = *(JsonObject *const *)a, *const right = *(JsonObject *const *)b;
    const double by = trace_time(left) != trace_time(right)
                          ? trace_time(left) - trace_time(right)
                          : duration_of(right) - duration_of(left);

    (void)unused;
    return by < 0 ? -1 : by > 0;
}

static void check_track(const char *track, GPtrArray *events)
{
    g_autoptr(GPtrArray) open = g_ptr_array_new();

    g_qsort_with_data(events->pdata, (int)events->len, sizeof events->pdata[0], compare, NULL);
    for (guint i = 0; i < events->len; i++) {
        JsonObject *const event = events->pdata[i];
        const double time = trace_time(event);
        JsonObject *top;

        switch (*phase_of(event)) {
        case 'X': /* times have three decimals of a double */
            while (open->len > 0 && (top = open->pdata[open->len - 1],
                                     trace_time(top) + duration_of(top) <= time + 0.002))
                g_ptr_array_set_size(open, (int)open->len - 1);
            require_msg(open->len == 0 ||
                            trace_time(top) + duration_of(top) + 0.002 >= time + duration_of(event),
                        "%s: %s ends behind %s, in which it begins", track, name_of(event),
                        name_of(top));
            g_ptr_array_add(open, event);
            break;
        case 'b':
            g_ptr_array_add(open, event);
            break;
        case 'e':
            require_msg(open->len > 0, "%s: the end of %s comes too early", track, name_of(event));
            top = open->pdata[open->len - 1];
            require_msg(g_str_equal(name_of(top), name_of(event)), "%s: %s ends in %s", track,
                        name_of(event), name_of(top));
            g_ptr_array_set_size(open, (int)open->len - 1);
            break;
        default:
            require_msg(open->len > 0, "%s: %s is in nothing", track, name_of(event));
        }
    }
    require_msg(open->len == 0 || *phase_of(open->pdata[0]) == 'X', "%s does not end", track);
}

static void check_tracks(const TraceFile *trace)
{
    g_autoptr(GHashTable) tracks =
        g_hash_table_new_full(g_str_hash, g_str_equal, g_free, (GDestroyNotify)g_ptr_array_unref);
    GHashTableIter iter;
    gpointer track, events;

    for (guint i = 0; i < json_array_get_length(trace->events); i++) {
        JsonObject *const event = json_array_get_object_element(trace->events, i);
        char *const key = strchr("Xben", *phase_of(event)) == NULL ? NULL : track_of(event);

        check_event(event);
        if (key == NULL)
            continue;
        events = g_hash_table_lookup(tracks, key);
        if (events == NULL)
            events = g_ptr_array_new();
        else
            g_ptr_array_ref(events);
        g_ptr_array_add(events, event);
        g_hash_table_replace(tracks, key, events);
    }
    g_hash_table_iter_init(&iter, tracks);
    while (g_hash_table_iter_next(&iter, &track, &events))
        check_track(track, events);
}

TraceFile trace_file_read(const char *path)
{
    TraceFile trace = { .parser = json_parser_new() };
    g_autoptr(GError) error = NULL;

    require_msg(json_parser_load_from_file(trace.parser, path, &error), "%s: %s", path,
                error->message);
    ck_assert(JSON_NODE_HOLDS_ARRAY(json_parser_get_root(trace.parser)));
    trace.events = json_node_get_array(json_parser_get_root(trace.parser));
    check_tracks(&trace);
    return trace;
}

void trace_file_clear(TraceFile *trace)
{
    g_clear_object(&trace->parser);
}

static JsonObject *find(const TraceFile *trace, const char *phase, const char *name, int pid,
                        unsigned *n)
{
    JsonObject *first = NULL;

    *n = 0;
    for (guint i = 0; i < json_array_get_length(trace->events); i++) {
        JsonObject *const event = json_array_get_object_element(trace->events, i);

        if (!g_str_equal(phase_of(event), phase) || !g_str_equal(name_of(event), name) ||
            (pid >= 0 && json_object_get_int_member(event, "pid") != pid))
            continue;
        if ((*n)++ == 0)
            first = event;
    }
    return first;
}

unsigned trace_count(const TraceFile *trace, const char *phase, const char *name, int pid)
{
    unsigned n;

    find(trace, phase, name, pid, &n);
    return n;
}

JsonObject *trace_find(const TraceFile *trace, const char *phase, const char *name, int pid)
{
    unsigned n;
    JsonObject *const event = find(trace, phase, name, pid, &n);

    require_msg(event != NULL, "there is no \"%s\" of phase %s", name, phase);
    return event;
}

int64_t trace_number(JsonObject *event, const char *key)
{
    return json_object_get_int_member(json_object_get_object_member(event, "args"), key);
}
