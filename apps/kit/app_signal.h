/* A signal during training: it stops it, if there is a place for what was learned: a folder for the
 * model, a directory of snapshots, or both. */
#ifndef RUBATO_APPS_KIT_APP_SIGNAL_H
#define RUBATO_APPS_KIT_APP_SIGNAL_H

#include "apps/kit/app.h"

/* RubatoEngineConfig.take_signal; user_data: App. It does not wait. The engine's thread of
 * signals. */
bool app_signal_take(int signal_number, void *user_data);

/* Between the two, worker 0 hears of a signal that came to this node, whether the node has workers
 * or not. There is the table APP_TOTALS meanwhile. main. */
bool app_signal_begin(App *app, GError **error);
void app_signal_end(App *app);

#endif
