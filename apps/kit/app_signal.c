/* What a signal does that comes to a program's node. Workers of the node see it themselves; those
 * of other nodes hear of it by a mark in the table of totals, which a thread adds to it: the thread
 * of signals may not wait for a server, and main waits for the task. So a node without workers
 * stops training as well as any other.
 *
 * The mark may arrive at any time, also between two tasks. So it may not be one from which each
 * node decides for itself whether there is another task: that is APP_TOTAL_END, which worker 0 adds
 * when it sees APP_TOTAL_ASK.
 *
 * Threads: as app_signal.h says; `tell` is the thread's own. */
#include "apps/kit/app_signal.h"

#include <string.h>

bool app_signal_take(int signal_number, void *user_data)
{
    App *app = user_data;
    const bool saves = app->keeps_at_signals;
    const char *what = saves ? "training stops" : NULL, *checkpoint = "";

    app->signal_number = signal_number;
    if (app->cuts_at_signals || app->ends_at_signals) {
        what = app->cuts_at_signals ? "training ends with a snapshot in "
                                    : "training ends with this epoch, and a snapshot in ";
        checkpoint = app->checkpoint;
    }
    if (what == NULL)
        return false;
    sem_post(&app->signals);
    if (app->reports)
        g_printerr("%s: signal %d (%s): %s%s%s%s; another signal ends the run without that\n",
                   app->program->name, signal_number, strsignal(signal_number), what, checkpoint,
                   saves ? ", and what it has learned is saved in " : "", saves ? app->save : "");
    return true;
}

/* The wait for a signal ends at the latest with app_signal_end; that for the servers when they
 * have answered, or when the run is over. If the mark cannot be added the run has failed, which
 * main reports. */
static void *tell(void *data)
{
    App *app = data;
    const RubatoKey key = 0;
    double mark[APP_N_TOTALS] = { 0 };

    mark[app->checkpoint != NULL ? APP_TOTAL_ASK : APP_TOTAL_STOP] = 1;
    while (!app->is_trained) {
        if (app->signal_number != 0)
            (void)rubato_engine_add(app->engine, APP_TOTALS, &key, 1, mark, NULL);
        while (sem_wait(&app->signals) != 0)
            continue; /* interrupted */
    }
    return NULL;
}

bool app_signal_begin(App *app, GError **error)
{
    app->is_trained = false;
    const int fault = pthread_create(&app->teller, NULL, tell, app);

    if (fault != 0)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "training: no thread: %s",
                    g_strerror(fault));
    return fault == 0;
}

void app_signal_end(App *app)
{
    app->is_trained = true;
    sem_post(&app->signals);
    pthread_join(app->teller, NULL);
}
