/* Streams of programs. */
#include "apps/kit/app_stream.h"

#include <math.h>
#include <string.h>

#define DEFAULT_EVERY_S 1.0
#define MOST_EVERY (1 << 30)

/* "1.5s" or "100c" */
static bool take_every(App *app, const char *text, GError **error)
{
    char *end;
    const double number = g_ascii_strtod(text, &end);
    const bool is_clocks = strcmp(end, "c") == 0;

    if (end == text || !(is_clocks || strcmp(end, "s") == 0) ||
        !(number > 0 && number <= MOST_EVERY) || (is_clocks && number != floor(number)))
        return app_refuse(error,
                          "--stream-every: expected seconds such as 0.5s, or clocks such as 100c, "
                          "found \"%s\"",
                          text);
    app->stream_every_s = is_clocks ? 0 : number;
    app->stream_every_clocks = is_clocks ? (uint64_t)number : 0;
    return true;
}

bool app_stream_take(App *app, const char *uri, const char *every, GError **error)
{
    if (uri == NULL)
        return every == NULL ||
               app_refuse(error, "--stream-every: needs --stream URI, where the model streams to");
    app->stream = g_strdup(uri);
    app->stream_every_s = DEFAULT_EVERY_S;
    if (every != NULL && !take_every(app, every, error))
        return false;
    if (rubato_stream_check(uri, error))
        return true;
    g_prefix_error(error, "--stream: ");
    return false;
}

RubatoTaskStream app_stream_of(const App *app, const char *const *tables)
{
    return (RubatoTaskStream){ .uri = app->stream,
                               .tables = tables,
                               .packing = app->stream_packing,
                               .every_s = app->stream_every_s,
                               .every_clocks = app->stream_every_clocks };
}

bool app_stream_wants_write(const App *app)
{
    const double seconds =
        (double)(g_get_monotonic_time() - app->stream_written_us) / G_USEC_PER_SEC;

    return app->stream != NULL &&
           (app->stream_every_clocks > 0 ? app->n_unstreamed >= app->stream_every_clocks
                                         : seconds >= app->stream_every_s);
}

void app_stream_written(App *app)
{
    app->n_unstreamed = 0;
    app->stream_written_us = g_get_monotonic_time();
}
