/* What the keys of a model mean, as it is saved with the model and shown to the user.
 *
 * Threads: any; a value belongs to one. */
#ifndef RUBATO_APPS_KIT_MODEL_APP_KEYS_H
#define RUBATO_APPS_KIT_MODEL_APP_KEYS_H

#include <rubato/rubato.h>

#include "apps/kit/model/app_json.h"

/* Adds an object to what is being built. */
void app_keys_write(JsonBuilder *builder, const RubatoDataKeys *keys);

/* Reads what app_keys_write wrote; NULL if it is something else. (transfer full) */
RubatoDataKeys *app_keys_read(JsonObject *object);

/* Of what app_keys_read gave; NULL is allowed. */
void app_keys_free(RubatoDataKeys *keys);

/* "the columns y, age, town; --format csv --label-column y --categorical town". (transfer full) */
char *app_keys_text(const RubatoDataKeys *keys);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoDataKeys, app_keys_free)

#endif
