/* --stream: the model flows out of training in numbered versions (rubato/stream.h).
 *
 * Each task that trains has the stream; with --checkpoint or --validate that is one for each epoch.
 * A program whose workers have what they learn in arrays of their own writes it to the tables as
 * often as versions flow out, in a step: so a version has all of a write, or nothing of it.
 *
 * Threads: main's, but for the last two. */
#ifndef RUBATO_APPS_KIT_APP_STREAM_H
#define RUBATO_APPS_KIT_APP_STREAM_H

#include "apps/kit/app.h"

/* Takes the flags; NULL: not given. */
bool app_stream_take(App *app, const char *uri, const char *every, GError **error);

/* The stream of a task whose tables are the model's. */
RubatoTaskStream app_stream_of(const App *app, const char *const *tables);

/* Whether worker 0 is to write to the tables what they do not have yet. Worker 0. */
bool app_stream_wants_write(const App *app);

/* It does so from now on. Worker 0. */
void app_stream_written(App *app);

#endif
