/* See engine_fixture.h. */
#include "tests/support/engine/engine_fixture.h"

#include <check.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "engine/engine_private.h"
#include "models/shard/shard.h"
#include "tests/support/sizes.h"

/* ---- engines, tables, tasks ---- */

RubatoEngine *engine_with_servers(uint32_t servers)
{
    g_autoptr(GError) error = NULL;
    RubatoEngine *engine = engine_new_of(&(RubatoEngineConfig){ .servers = servers },
                                         &(EngineParts){ .sizes = test_sizes() }, &error);

    ck_assert_msg(engine != NULL, "%s", error == NULL ? "no error set" : error->message);
    return engine;
}

void create_table(RubatoEngine *engine, const RubatoTableSpec *spec)
{
    g_autoptr(GError) error = NULL;
    const bool created = rubato_engine_create_table(engine, spec, &error);

    ck_assert_msg(created, "%s", error == NULL ? "no error set" : error->message);
}

void run_task_ok(RubatoEngine *engine, const RubatoTask *task)
{
    g_autoptr(GError) error = NULL;
    const bool ok = rubato_engine_run(engine, task, &error);

    ck_assert_msg(ok, "%s", error == NULL ? "no error set" : error->message);
    ck_assert_ptr_null(error);
}

void run_ok(RubatoEngine *engine, uint32_t workers, RubatoTaskFunc function, void *user_data,
            const char *table)
{
    const char *const tables[] = { table, NULL };

    run_task_ok(engine, &(RubatoTask){ .name = "case",
                                       .run = function,
                                       .user_data = user_data,
                                       .tables = tables,
                                       .workers_per_node = workers });
}

static void check_texts(const GError *error, RubatoError code, va_list texts)
{
    const char *text;

    ck_assert_msg(error != NULL, "it failed and set no error");
    ck_assert_msg(g_error_matches(error, RUBATO_ERROR, (gint)code), "error %d instead of %d: %s",
                  error->code, (int)code, error->message);
    while ((text = va_arg(texts, const char *)) != NULL)
        ck_assert_msg(strstr(error->message, text) != NULL, "\"%s\" is not in: %s", text,
                      error->message);
}

void check_error(GError **error, RubatoError code, ...)
{
    va_list texts;

    va_start(texts, code);
    check_texts(*error, code, texts);
    va_end(texts);
    g_clear_error(error);
}

void run_fails(RubatoEngine *engine, const RubatoTask *task, RubatoError code, ...)
{
    g_autoptr(GError) error = NULL;
    va_list texts;

    ck_assert(!rubato_engine_run(engine, task, &error));
    va_start(texts, code);
    check_texts(error, code, texts);
    va_end(texts);
}

static void read_value(RubatoEngine *engine, const char *table, RubatoKey key, void *value)
{
    g_autoptr(GError) error = NULL;
    const bool read = rubato_engine_get(engine, table, &key, 1, value, &error);

    ck_assert_msg(read, "%s", error == NULL ? "no error set" : error->message);
}

int64_t read_i64(RubatoEngine *engine, const char *table, RubatoKey key)
{
    int64_t value = INT64_MIN;

    read_value(engine, table, key, &value);
    return value;
}

double read_f64(RubatoEngine *engine, const char *table, RubatoKey key)
{
    double value = -1;

    read_value(engine, table, key, &value);
    return value;
}

typedef struct {
    uint32_t table;
    uint64_t n_rows;
} RowCount;

static void count_in(Server *server, void *data)
{
    RowCount *count = data;
    RubatoTableStats sum = { 0 };

    server_sum_table(server, count->table, &sum);
    count->n_rows += sum.n_rows;
}

uint64_t count_rows_of(RubatoEngine *engine, const char *table, uint32_t server)
{
    RowCount count = { 0 };

    pthread_mutex_lock(&engine->lock);
    count.table = engine_find_table(engine, table, NULL)->id;
    pthread_mutex_unlock(&engine->lock);
    servers_run(&engine->servers[server], 1, count_in, &count);
    return count.n_rows;
}

uint64_t count_rows(RubatoEngine *engine, const char *table)
{
    uint64_t n_rows = 0;

    for (uint32_t server = 0; server < engine->n_servers; server++)
        n_rows += count_rows_of(engine, table, server);
    return n_rows;
}

GBytes *call_handler(RubatoEngine *engine, const RubatoHandlerCall *call)
{
    g_autoptr(GError) error = NULL;
    GBytes *result = NULL;
    const bool called = rubato_engine_call_handler(engine, call, &result, &error);

    ck_assert_msg(called, "%s", error == NULL ? "no error set" : error->message);
    return result;
}

double call_handler_f64(RubatoEngine *engine, const RubatoHandlerCall *call)
{
    g_autoptr(GBytes) result = call_handler(engine, call);
    RubatoByteReader reader = rubato_byte_reader_of(result);
    const double value = rubato_read_f64(&reader);

    ck_assert(rubato_byte_reader_finish(&reader, "the result", NULL));
    return value;
}

/* ---- inside a worker ---- */

bool fail_at(GError **error, const char *file, int line, const char *condition, const char *format,
             ...)
{
    va_list arguments;
    g_autofree char *text = NULL;

    va_start(arguments, format);
    text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    g_clear_error(error);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "%s:%d: %s does not hold%s", file, line,
                condition, text);
    return false;
}

bool is_error(GError **error, RubatoError code, const char *text)
{
    const bool is = g_error_matches(*error, RUBATO_ERROR, (gint)code) &&
                    (text == NULL || strstr((*error)->message, text) != NULL);

    if (!is && *error != NULL)
        g_printerr("another error than expected: %s\n", (*error)->message);
    g_clear_error(error);
    return is;
}

/* ---- events ---- */

void event_raise(Event *event)
{
    pthread_mutex_lock(&event->lock);
    event->count++;
    pthread_cond_broadcast(&event->changed);
    pthread_mutex_unlock(&event->lock);
}

uint32_t event_count(Event *event)
{
    uint32_t count;

    pthread_mutex_lock(&event->lock);
    count = event->count;
    pthread_mutex_unlock(&event->lock);
    return count;
}

void event_wait(Event *event, uint32_t count)
{
    pthread_mutex_lock(&event->lock);
    while (event->count < count)
        pthread_cond_wait(&event->changed, &event->lock);
    pthread_mutex_unlock(&event->lock);
}

/* Waits for a change, at most that long; the lock is held. */
static void wait_briefly(Event *event)
{
    struct timespec deadline;

    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_nsec += 50 * 1000000L;
    if (deadline.tv_nsec >= 1000000000L) {
        deadline.tv_nsec -= 1000000000L;
        deadline.tv_sec++;
    }
    pthread_cond_timedwait(&event->changed, &event->lock, &deadline);
}

bool event_await(Event *event, uint32_t count, RubatoWorker *worker, GError **error)
{
    bool raised;

    pthread_mutex_lock(&event->lock);
    while (event->count < count && !rubato_worker_cancelled(worker))
        wait_briefly(event);
    raised = event->count >= count;
    pthread_mutex_unlock(&event->lock);
    if (!raised)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED, "another worker failed");
    return raised;
}

/* ---- the log ---- */

/* GLib knows one log for the process, so there is one here. */
static struct {
    Event lines; /* its lock guards text too */
    GPtrArray *text;
} captured = { .lines = EVENT_INIT };

static GLogWriterOutput capture(GLogLevelFlags level, const GLogField *fields, gsize n_fields,
                                gpointer user_data)
{
    (void)level;
    (void)user_data;
    for (gsize i = 0; i < n_fields; i++)
        if (strcmp(fields[i].key, "MESSAGE") == 0) {
            g_printerr("%s\n", (const char *)fields[i].value);
            pthread_mutex_lock(&captured.lines.lock);
            g_ptr_array_add(captured.text, g_strdup(fields[i].value));
            captured.lines.count++;
            pthread_cond_broadcast(&captured.lines.changed);
            pthread_mutex_unlock(&captured.lines.lock);
        }
    return G_LOG_WRITER_HANDLED;
}

static _Atomic(GLogWriterFunc) log_writer;

static GLogWriterOutput write_log(GLogLevelFlags level, const GLogField *fields, gsize n_fields,
                                  gpointer user_data)
{
    return atomic_load(&log_writer)(level, fields, n_fields, user_data);
}

void log_set_writer(GLogWriterFunc writer)
{
    if (atomic_exchange(&log_writer, writer) == NULL)
        g_log_set_writer_func(write_log, NULL, NULL);
}

void log_capture_start(void)
{
    captured.text = g_ptr_array_new_with_free_func(g_free);
    log_set_writer(capture);
}

char *log_capture_wait(const char *text, const char *other)
{
    char *found = NULL;

    pthread_mutex_lock(&captured.lines.lock);
    for (guint i = 0; found == NULL; i++) {
        const char *line;

        while (captured.text->len <= i)
            pthread_cond_wait(&captured.lines.changed, &captured.lines.lock);
        line = g_ptr_array_index(captured.text, i);
        if (strstr(line, text) != NULL && strstr(line, other) != NULL)
            found = g_strdup(line);
    }
    pthread_mutex_unlock(&captured.lines.lock);
    return found;
}

unsigned log_capture_count(const char *text)
{
    unsigned n = 0;

    pthread_mutex_lock(&captured.lines.lock);
    for (guint i = 0; i < captured.text->len; i++)
        n += strstr(g_ptr_array_index(captured.text, i), text) != NULL;
    pthread_mutex_unlock(&captured.lines.lock);
    return n;
}

/* ---- values ---- */

void value_store(RubatoDtype dtype, void *values, size_t i, int64_t value)
{
    switch (dtype) {
    case RUBATO_F32:
        ((float *)values)[i] = (float)value;
        break;
    case RUBATO_F64:
        ((double *)values)[i] = (double)value;
        break;
    case RUBATO_I32:
        ((int32_t *)values)[i] = (int32_t)value;
        break;
    case RUBATO_I64:
        ((int64_t *)values)[i] = value;
        break;
    case RUBATO_U8:  /* in ragged rows alone */
    case RUBATO_F16: /* the rest: of tensors alone */
    case RUBATO_BF16:
    case RUBATO_I8:
    case RUBATO_I16:
    case RUBATO_BOOL:
        break;
    }
}

int64_t value_load(RubatoDtype dtype, const void *values, size_t i)
{
    switch (dtype) {
    case RUBATO_F32:
        return (int64_t)((const float *)values)[i];
    case RUBATO_F64:
        return (int64_t)((const double *)values)[i];
    case RUBATO_I32:
        return ((const int32_t *)values)[i];
    case RUBATO_I64:
        break;
    case RUBATO_U8:  /* in ragged rows alone */
    case RUBATO_F16: /* the rest: of tensors alone */
    case RUBATO_BF16:
    case RUBATO_I8:
    case RUBATO_I16:
    case RUBATO_BOOL:
        break;
    }
    return ((const int64_t *)values)[i];
}
