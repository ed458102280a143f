/* Whole engines of one process in tests: makes engines, tables and tasks with one line each; checks
 * inside workers; events between them; the lines that they log.
 *
 * A worker thread must not use the assertions of check. It uses REQUIRE, which fails the task, and
 * so the case, in run_ok.
 *
 * Threads: engine_* , run_*, log_set_writer and log_capture_start from the case's own; the rest
 * from any. */
#ifndef TESTS_SUPPORT_ENGINE_ENGINE_FIXTURE_H
#define TESTS_SUPPORT_ENGINE_ENGINE_FIXTURE_H

#include <pthread.h>
#include <rubato/rubato.h>

/* ---- engines, tables, tasks: a failure here fails the case ---- */

RubatoEngine *engine_with_servers(uint32_t servers);
void create_table(RubatoEngine *engine, const RubatoTableSpec *spec);

/* Runs a task of that many workers on one table (NULL: none). */
void run_ok(RubatoEngine *engine, uint32_t workers, RubatoTaskFunc function, void *user_data,
            const char *table);
void run_task_ok(RubatoEngine *engine, const RubatoTask *task);

/* The same for a task that must fail with that error. The message must contain each of the texts,
 * which NULL ends. */
void run_fails(RubatoEngine *engine, const RubatoTask *task, RubatoError code,
               ...) G_GNUC_NULL_TERMINATED;

/* Checks an error and clears it. */
void check_error(GError **error, RubatoError code, ...) G_GNUC_NULL_TERMINATED;

/* One value of a table of i64, or of f64, read without the models. */
int64_t read_i64(RubatoEngine *engine, const char *table, RubatoKey key);
double read_f64(RubatoEngine *engine, const char *table, RubatoKey key);

/* The number of a table's rows on all servers, or on one server. */
uint64_t count_rows(RubatoEngine *engine, const char *table);
uint64_t count_rows_of(RubatoEngine *engine, const char *table, uint32_t server);

/* Calls a handler between tasks; the second one for a result that is one number. (transfer full) */
GBytes *call_handler(RubatoEngine *engine, const RubatoHandlerCall *call);
double call_handler_f64(RubatoEngine *engine, const RubatoHandlerCall *call);

/* An assertion for a call that takes `&error`; tells that error. */
#define MUST(call)                                                      \
    do {                                                                \
        g_autoptr(GError) error = NULL;                                 \
        ck_assert_msg(call, "%s", error != NULL ? error->message : ""); \
    } while (0)

/* An assertion for loops: check records each of its own assertions, which takes time. */
#define QUICK_ASSERT(condition)                           \
    do {                                                  \
        if (!(condition))                                 \
            ck_abort_msg("%s does not hold", #condition); \
    } while (0)

/* ---- inside a worker ---- */

bool fail_at(GError **error, const char *file, int line, const char *condition, const char *format,
             ...) G_GNUC_PRINTF(5, 6);

/* In a function that has `GError **error` and returns bool: if the condition does not hold, returns
 * false with place, condition and message. */
#define REQUIRE(condition, ...)                                                     \
    do {                                                                            \
        if (!(condition))                                                           \
            return fail_at(error, __FILE__, __LINE__, #condition, " " __VA_ARGS__); \
    } while (0)

/* Like ck_assert for a call that takes `error` and has set it: returns false if it failed. */
#define TRY(call)         \
    do {                  \
        if (!(call))      \
            return false; \
    } while (0)

/* Checks an error inside a worker and clears it. */
bool is_error(GError **error, RubatoError code, const char *text);

/* ---- events ---- */

/* A counter by which one thread waits for another. */
typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t count; /* guarded by lock */
} Event;

#define EVENT_INIT                                                             \
    {                                                                          \
        .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER \
    }

void event_raise(Event *event);
uint32_t event_count(Event *event);

/* Waits until it was raised that often. */
void event_wait(Event *event, uint32_t count);

/* The same in a worker; false with RUBATO_ERROR_CANCELLED if another worker has failed, so that
 * the case ends with that failure and not with a timeout. */
bool event_await(Event *event, uint32_t count, RubatoWorker *worker, GError **error);

/* ---- the log ---- */

/* Who writes the log from now on. GLib itself takes one function for the life of a process. */
void log_set_writer(GLogWriterFunc writer);

/* From now on everything that is logged is kept. Once in a case. */
void log_capture_start(void);

/* Waits for a line that contains both texts. (transfer full) */
char *log_capture_wait(const char *text, const char *other);

/* The lines so far that contain the text. */
unsigned log_capture_count(const char *text);

/* ---- values of any dtype, as whole numbers ---- */

void value_store(RubatoDtype dtype, void *values, size_t i, int64_t value);
int64_t value_load(RubatoDtype dtype, const void *values, size_t i);

/* ---- pseudo-random numbers: the same from the same seed ---- */

static inline uint64_t next_random(uint64_t *state)
{
    return rubato_mix64(*state += UINT64_C(0x9e3779b97f4a7c15)); /* SplitMix64 */
}

static inline uint32_t random_below(uint64_t *state, uint32_t limit)
{
    return (uint32_t)(next_random(state) % limit);
}

#endif
