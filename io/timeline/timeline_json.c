/* The lines of a Chrome trace: an event each. The format: "Trace Event Format", by Google.
 *
 * Each worker of a task is a process of the trace. Its calls are on one track, as they nest. A
 * collective is on a track of its tensor, because a worker may wait for many at once.
 *
 * Thread: the timeline's writer. */
#include <string.h>

#include "io/timeline/timeline_private.h"

/* Processes of a trace: below RANKS_OF_TASK the nodes; then the workers of each task, one behind
 * another. Numbers of tasks repeat, so that those of processes fit into 31 bits. */
enum { RANKS_OF_TASK = 10000000, TASKS = 200 };

static uint32_t process_of(const TimelineFrame *frame, TimelineActor actor)
{
    return actor.epoch == 0
               ? frame->node
               : (1 + (actor.epoch - 1) % TASKS) * RANKS_OF_TASK + actor.rank % RANKS_OF_TASK;
}

/* ---- parts of a line ---- */

static void append_number(GString *text, uint64_t number)
{
    char digits[20];
    size_t at = sizeof digits;

    do
        digits[--at] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    g_string_append_len(text, digits + at, (gssize)(sizeof digits - at));
}

/* In microseconds, as the format has it. */
static void append_time(GString *text, uint64_t ns)
{
    const char fraction[] = { '.', (char)('0' + ns / 100 % 10), (char)('0' + ns / 10 % 10),
                              (char)('0' + ns % 10) };

    append_number(text, ns / 1000);
    g_string_append_len(text, fraction, sizeof fraction);
}

static void append_escaped(GString *text, const char *string)
{
    g_autofree char *valid =
        g_utf8_validate(string, -1, NULL) ? NULL : g_utf8_make_valid(string, -1);

    for (const char *at = valid != NULL ? valid : string; *at != '\0'; at++)
        if (*at == '"' || *at == '\\') {
            g_string_append_c(text, '\\');
            g_string_append_c(text, *at);
        } else if ((unsigned char)*at < ' ')
            g_string_append_printf(text, "\\u%04x", (unsigned char)*at);
        else
            g_string_append_c(text, *at);
}

/* An event up to its time. A NULL after `what` leaves out the subject. */
static void begin_event(GString *text, const TimelineFrame *frame, char phase, uint32_t process,
                        uint64_t at_ns)
{
    g_string_append(text, ",\n{\"ph\":\"");
    g_string_append_c(text, phase);
    g_string_append(text, "\",\"pid\":");
    append_number(text, process);
    g_string_append(text, ",\"tid\":0,\"ts\":");
    append_time(text, at_ns + (uint64_t)frame->offset_ns);
}

static void append_name(GString *text, const char *what, const char *subject)
{
    g_string_append(text, ",\"name\":\"");
    g_string_append(text, what);
    if (subject != NULL) {
        if (*what != '\0')
            g_string_append_c(text, ' ');
        append_escaped(text, subject);
    }
    g_string_append_c(text, '"');
}

static void append_argument(GString *text, bool is_first, const char *key, uint64_t value)
{
    g_string_append(text, is_first ? ",\"args\":{\"" : ",\"");
    g_string_append(text, key);
    g_string_append(text, "\":");
    append_number(text, value);
}

/* ---- records ---- */

static void write_name(GString *text, const TimelineFrame *frame, TimelineActor actor,
                       const char *task)
{
    const uint32_t process = process_of(frame, actor);

    g_string_append_printf(text,
                           ",\n{\"ph\":\"M\",\"pid\":%u,\"tid\":0,\"name\":\"process_name\","
                           "\"args\":{\"name\":\"",
                           process);
    append_escaped(text, task);
    if (actor.epoch != 0)
        g_string_append_printf(text, ": rank %u (node %u)", actor.rank, frame->node);
    g_string_append_printf(text,
                           "\"}},\n{\"ph\":\"M\",\"pid\":%u,\"tid\":0,"
                           "\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%u}}"
                           ",\n{\"ph\":\"M\",\"pid\":%u,\"tid\":0,\"name\":\"thread_name\","
                           "\"args\":{\"name\":\"calls\"}}",
                           process, process, process);
}

static void append_numbers(GString *text, const TimelineCall *call)
{
    for (size_t i = 0; i < TIMELINE_MOST_NUMBERS && call->numbers[i].key != NULL; i++)
        append_argument(text, i == 0, call->numbers[i].key, call->numbers[i].value);
    g_string_append(text, call->numbers[0].key != NULL ? "}}" : "}");
}

static void append_end_of_request(GString *text, const TimelineFrame *frame, char phase,
                                  uint64_t at_ns, const TimelineCall *call, const char *subject)
{
    const uint32_t process = process_of(frame, call->actor);

    begin_event(text, frame, phase, process, at_ns);
    g_string_append_printf(text, ",\"cat\":\"request\",\"id\":\"%u/%" G_GUINT64_FORMAT "\"",
                           process, call->id);
    append_name(text, call->what, subject);
}

static void write_request(GString *text, const TimelineFrame *frame, const TimelineCall *call,
                          const char *subject)
{
    append_end_of_request(text, frame, 'b', call->begun_ns, call, subject);
    append_numbers(text, call);
    append_end_of_request(text, frame, 'e', call->ended_ns, call, subject);
    g_string_append_c(text, '}');
}

static void write_call(GString *text, const TimelineFrame *frame, const TimelineCall *call,
                       const char *subject)
{
    begin_event(text, frame, 'X', process_of(frame, call->actor), call->begun_ns);
    g_string_append(text, ",\"dur\":");
    append_time(text, call->ended_ns - call->begun_ns);
    append_name(text, call->what, subject);
    append_numbers(text, call);
}

/* Events on the track of a tensor. */
typedef struct {
    GString *text;
    const TimelineFrame *frame;
    const TimelineOperation *operation;
    const char *name;
} Track;

/* The event is open behind its name. */
static void append_event(const Track *track, char phase, uint64_t at_ns, const char *what,
                         const char *subject)
{
    GString *const text = track->text;
    const uint32_t process = process_of(track->frame, track->operation->actor);

    begin_event(text, track->frame, phase, process, at_ns);
    g_string_append_printf(text, ",\"cat\":\"collective\",\"id\":\"%u/%u/", process,
                           track->operation->set);
    append_escaped(text, track->name);
    g_string_append_c(text, '"');
    append_name(text, what, subject);
}

static void append_span(const Track *track, const char *what, uint64_t begun_ns, uint64_t ended_ns)
{
    append_event(track, 'b', begun_ns, what, NULL);
    g_string_append_c(track->text, '}');
    append_event(track, 'e', ended_ns, what, NULL);
    g_string_append_c(track->text, '}');
}

/* Events of one time stand in the order in which they nest. */
static void write_operation(GString *text, const TimelineFrame *frame,
                            const TimelineOperation *operation, const TimelineTick *ticks,
                            const char *name)
{
    const Track track = { text, frame, operation, name };

    append_event(&track, 'b', operation->asked_ns, "", name);
    append_argument(text, true, "task", operation->actor.epoch);
    append_argument(text, false, "number", operation->number);
    append_argument(text, false, "bytes", operation->n_bytes);
    append_argument(text, false, "together", operation->n_together);
    append_argument(text, false, "failed", operation->has_failed);
    g_string_append(text, "}}");
    append_event(&track, 'b', operation->asked_ns, "negotiate", NULL);
    g_string_append_c(text, '}');
    for (uint32_t i = 0; i < operation->n_ticks; i++) {
        append_event(&track, 'n', ticks[i].at_ns, "rank", NULL);
        text->str[text->len - 1] = ' ';
        append_number(text, ticks[i].rank);
        g_string_append(text, "\"}");
    }
    append_event(&track, 'e', operation->decided_ns, "negotiate", NULL);
    g_string_append_c(text, '}');
    append_span(&track, "queue", operation->decided_ns, operation->begun_ns);
    append_span(&track, operation->operation, operation->begun_ns, operation->ended_ns);
    append_event(&track, 'e', operation->ended_ns, "", name);
    g_string_append_c(text, '}');
}

/* The first record. */
static void write_clock(GString *text, TimelineFrame *frame, const TimelineClock *clock)
{
    g_autofree char *name = g_strdup_printf("node %u", frame->node);

    frame->offset_ns = clock->offset_ns;
    write_name(text, frame, (TimelineActor){ .epoch = 0 }, name);
    begin_event(text, frame, 'i', frame->node, (uint64_t)monotonic_ns());
    append_name(text, "recording begins", NULL);
    g_string_append_printf(text, ",\"s\":\"p\",\"args\":{\"clock_offset_ns\":%" G_GINT64_FORMAT,
                           clock->offset_ns);
    if (clock->is_own) /* rubato timeline merge looks for this */
        g_string_append(text, ",\"clock\":\"the node's own time\"}}");
    else
        g_string_append_printf(text, ",\"clock_error_ns\":%" G_GUINT64_FORMAT "}}",
                               clock->error_ns);
}

void timeline_write_record(GString *text, TimelineFrame *frame, const TimelineRecord *record)
{
    const TimelineTick *const ticks = (const TimelineTick *)(const void *)(record + 1);
    const uint32_t n_ticks =
        record->kind == TIMELINE_RECORD_OPERATION ? record->operation.n_ticks : 0;
    const char *const string =
        record->has_text ? (const char *)(const void *)(ticks + n_ticks) : NULL;

    switch (record->kind) {
    case TIMELINE_RECORD_CLOCK:
        write_clock(text, frame, &record->clock);
        break;
    case TIMELINE_RECORD_NAME:
        write_name(text, frame, record->named, string);
        break;
    case TIMELINE_RECORD_CALL:
        if (record->call.id != 0)
            write_request(text, frame, &record->call, string);
        else
            write_call(text, frame, &record->call, string);
        break;
    case TIMELINE_RECORD_OPERATION:
        write_operation(text, frame, &record->operation, ticks, string);
        break;
    }
}

/* ---- what the timeline says of itself ---- */

void timeline_write_dropped(GString *text, const TimelineFrame *frame, uint64_t at_ns,
                            uint64_t n_dropped)
{
    begin_event(text, frame, 'i', frame->node, at_ns);
    append_name(text, "events were dropped: the file could not be written as fast", NULL);
    g_string_append(text, ",\"s\":\"p\"");
    append_argument(text, true, "dropped", n_dropped);
    g_string_append(text, "}}");
}
