/* Members of a status as it came over the network: any of them may be missing, or something else
 * than it ought to be. Then there is none.
 *
 * Threads: any; one at a time for each tree. */
#ifndef APPS_RUBATO_STATUS_STATUS_JSON_H
#define APPS_RUBATO_STATUS_STATUS_JSON_H

#include <json-glib/json-glib.h>
#include <stdbool.h>
#include <stdint.h>

/* Reads a text: an object with the member "rubato_status". RUBATO_ERROR_FORMAT. (transfer full) */
JsonNode *status_json_read(const char *text, size_t n, GError **error);

/* -1: there is none, or it is negative. */
int64_t status_json_count(JsonObject *object, const char *name);

/* 0 if there is none. */
double status_json_seconds(JsonObject *object, const char *name);
bool status_json_flag(JsonObject *object, const char *name);

/* The text without control characters, which are commands of a terminal. (transfer full) */
char *status_json_printable(const char *text);

/* The same of a member; NULL if there is none. (transfer full) */
char *status_json_text(JsonObject *object, const char *name);

/* NULL if there is none. (transfer none) */
JsonObject *status_json_object(JsonObject *object, const char *name);

/* How many elements a list has, and one of them; NULL if it is no object. (transfer none) */
unsigned status_json_length(JsonObject *object, const char *name);
JsonObject *status_json_element(JsonObject *object, const char *name, unsigned i);

#endif
