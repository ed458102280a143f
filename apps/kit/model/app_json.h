/* Members of JSON objects: NULL, or false, if one is missing or of another type. The object may be
 * NULL; then every member is missing.
 *
 * Threads: any; an object belongs to one. */
#ifndef RUBATO_APPS_KIT_MODEL_APP_JSON_H
#define RUBATO_APPS_KIT_MODEL_APP_JSON_H

#include <json-glib/json-glib.h>
#include <stdbool.h>
#include <stdint.h>

JsonObject *app_json_object(JsonObject *object, const char *name);
JsonArray *app_json_array(JsonObject *object, const char *name);
const char *app_json_text(JsonObject *object, const char *name);
bool app_json_int(JsonObject *object, const char *name, uint64_t *value);
bool app_json_double(JsonObject *object, const char *name, double *value);

/* Adds a member. text NULL: null. */
void app_json_add_text(JsonBuilder *builder, const char *name, const char *text);
void app_json_add_int(JsonBuilder *builder, const char *name, uint64_t value);

#endif
