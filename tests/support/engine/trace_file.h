/* Chrome traces in tests.
 *
 * Threads: the case's own. */
#ifndef TESTS_SUPPORT_ENGINE_TRACE_FILE_H
#define TESTS_SUPPORT_ENGINE_TRACE_FILE_H

#include <json-glib/json-glib.h>

typedef struct {
    JsonParser *parser;
    JsonArray *events; /* its root */
} TraceFile;

/* Reads a trace. The case fails unless it is whole: each event has what its phase needs, calls of a
 * thread lie within each other or behind each other, and so do the spans of a collective. */
TraceFile trace_file_read(const char *path);
void trace_file_clear(TraceFile *trace);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(TraceFile, trace_file_clear)

/* The events of a phase and name; pid -1: of any process. */
unsigned trace_count(const TraceFile *trace, const char *phase, const char *name, int pid);

/* The first of them; the case fails if there is none. (transfer none) */
JsonObject *trace_find(const TraceFile *trace, const char *phase, const char *name, int pid);

double trace_time(JsonObject *event);

/* A number of its arguments. */
int64_t trace_number(JsonObject *event, const char *key);

#endif
