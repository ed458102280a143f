/* A process that takes the place of a lost node, and runs its program from the beginning. Its calls
 * are numbered like those of all nodes. A call that the run has made before is answered by the
 * scheduler (PAST): it does nothing, and ends as it had ended. So the program comes to a call that
 * the others have yet to make; from there on the node is one like all others (CAUGHT_UP).
 *
 * Until then its thread of serving.h does the node's part of the calls of the others. It goes on
 * with that for the calls of the program itself, so that all is done in one order.
 *
 * Threads: as each function says. */
#ifndef RUBATO_ENGINE_JOIN_NEWCOMER_H
#define RUBATO_ENGINE_JOIN_NEWCOMER_H

#include <rubato/engine.h>

#include "engine/catalogue.h"
#include "engine/collective.h"

/* How far the program's present call has come. */
typedef enum {
    NEWCOMER_NONE,  /* there is none */
    NEWCOMER_ASKED, /* the scheduler has been asked */
    NEWCOMER_PAST,  /* the run had made it before */
    NEWCOMER_DONE,  /* it has been made now */
} NewcomerStage;

/* Guarded by the engine's lock. */
typedef struct {
    bool is_placed;     /* it knows where parts are */
    bool has_caught_up; /* it makes the calls of the others */
    bool has_ended;     /* its thread does nothing any more */
    pthread_t thread;   /* of serving.h; the thread that makes the engine, and frees it */
    bool has_thread;
    uint64_t n_calls;

    NewcomerStage stage;
    const CollectiveCall *call; /* its own */
    bool has_gone;              /* a GO of it has come */
    uint32_t awaited;           /* the task for whose end it waits; 0: none */
    bool is_ok;
    GError *error;    /* of a call that is done; owned */
    uint32_t past_id; /* as in PAST, like the next ones */
    uint32_t past_code;
    char *past_text;
    char *past_told; /* owned; empty: nothing */

    GArray *watched;    /* of WatchedTask */
    GQueue *told;       /* numbers of calls of which its thread has yet to do its part: uint64_t */
    GHashTable *tables; /* names of those that it has made, and not dropped, before it caught up */
} Newcomer;

/* (transfer full) */
Newcomer *newcomer_new(void);

/* Once nothing is told any more. NULL is allowed. */
void newcomer_free(Newcomer *newcomer);

/* Whether this process runs a program that has yet to catch up. Any thread. */
bool newcomer_catches_up(RubatoEngine *engine);

/* What the scheduler says. The control actor's owner. */
void newcomer_hears_past(RubatoEngine *engine, const ControlPast *past);
void newcomer_hears_caught_up(RubatoEngine *engine, const ControlCaughtUp *caught_up);
void newcomer_hears_cancel(RubatoEngine *engine, const ControlTaskEnd *cancel);
void newcomer_hears_end(RubatoEngine *engine, const ControlTaskEnd *end);

/* A COMMIT without a GO: the call was refused, or is a barrier. */
void newcomer_hears_commit(RubatoEngine *engine, const ControlCallEnd *commit);

/* Whether the call of a GO is the program's own, which goes on now. The lock is held. */
bool newcomer_makes(Newcomer *newcomer, uint64_t call);

/* Its thread is told to do its part of a call; it has done all that it was told first. Calls come
 * in their order. The lock is held. */
void newcomer_note_told(Newcomer *newcomer, uint64_t call);
void newcomer_note_done(RubatoEngine *engine);

/* Waits until the thread has done its part of that call and all before it, if it was told of them.
 * The lock is held. */
void newcomer_await_done(RubatoEngine *engine, uint64_t call);

/* The program's call has been made. The lock is held. Takes the error. */
void newcomer_end_call(RubatoEngine *engine, bool ok, GError *error);

/* The thread of serving.h has done all that it does. */
void newcomer_end(RubatoEngine *engine);

/* What is said of a run that has ended before the program has caught up. (transfer full) */
char *newcomer_describe_end(const RubatoEngine *engine);

/* Parts have their places, and maps are open. The thread of part steps. */
void newcomer_note_placed(RubatoEngine *engine);

/* Waits until parts have their places, so that the program can begin. False: the run ended. */
bool newcomer_wait_placed(RubatoEngine *engine, GError **error);

/* Of a call of the others that drops the table: waits while the program, which has yet to catch up,
 * has the table in use. The others have done that before. What they have in use, too, is not waited
 * for. The lock is held. */
void newcomer_await_release(RubatoEngine *engine, const Table *table, uint64_t call);

/* Begins the program's next call; what was said of it; ends it. The lock is held. */
uint64_t newcomer_begin_call(RubatoEngine *engine, const CollectiveCall *call);
bool newcomer_check_call(RubatoEngine *engine, GError **error);

/* The program's tables, as it knows them before it has caught up: whether there is one of that
 * name; it has been made, or dropped, before. Any thread. */
bool newcomer_has_table(RubatoEngine *engine, const char *name);
void newcomer_note_table(RubatoEngine *engine, const char *name, bool is_there);

/* A task in which this process has workers again is about to be known here: tells it what the
 * scheduler has said since. The lock is held. */
void newcomer_bring_up(RubatoEngine *engine, RubatoTaskRun *run);

/* Waits for the end of a task that others had begun before. Returns how it ended. */
bool newcomer_wait_task(RubatoEngine *engine, uint32_t epoch, GError **error);

#endif
