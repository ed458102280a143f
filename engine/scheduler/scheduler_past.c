/* The calls that the run has made: for a process in the place of a lost node whose program makes
 * them once more. Its first call is answered as the first of the run ended, and so on, until it
 * comes to one that others have yet to make, or are making.
 *
 * A run may make very many calls, mostly like earlier ones. So each text is kept once, and a call
 * takes some bytes. Beyond MOST_CALLS, or MOST_BYTES of texts, the list is given up: such a process
 * hears so at its first call.
 *
 * Runs as scheduler.h says. */
#include "engine/scheduler/scheduler_past.h"

#include <string.h>

#include "engine/scheduler/scheduler_base.h"

#define MOST_CALLS (1u << 18)
#define MOST_BYTES ((size_t)16 << 20)

typedef struct {
    ControlCall what;
    uint32_t id;
    const char *name, *digest; /* in the texts, as the next ones are */
    uint32_t code;
    const char *text;
    bool goes_on; /* a task that has begun, and not ended */
    uint32_t end_code;
    const char *end_text;
} PastCall;

struct PastCalls {
    GArray *calls; /* of PastCall, by number from 1 */
    GHashTable *texts;
    size_t n_bytes; /* of the texts */
    bool is_given_up;
};

PastCalls *past_new(void)
{
    PastCalls *const past = g_new0(PastCalls, 1);

    past->calls = g_array_new(FALSE, FALSE, sizeof(PastCall));
    past->texts = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    return past;
}

void past_free(PastCalls *past)
{
    g_array_unref(past->calls);
    g_hash_table_unref(past->texts);
    g_free(past);
}

/* The same text, as long as the list lives. */
static const char *keep(PastCalls *past, const char *text)
{
    const char *kept;

    if (text == NULL)
        return NULL;
    kept = g_hash_table_lookup(past->texts, text);
    if (kept == NULL) {
        char *const copy = g_strdup(text);

        past->n_bytes += strlen(copy) + 1;
        g_hash_table_add(past->texts, copy);
        kept = copy;
    }
    return kept;
}

/* Nothing is kept of the calls so far, nor of later ones. */
static void give_up(PastCalls *past)
{
    past->is_given_up = true;
    g_array_set_size(past->calls, 0);
    g_hash_table_remove_all(past->texts);
}

void past_note(Scheduler *scheduler, const Collective *call)
{
    PastCalls *const past = scheduler->past;

    if (past->is_given_up || scheduler->config.single)
        return;
    const bool ok = call->verdict.code == CONTROL_OK;
    const PastCall one = { .what = call->what,
                           .id = call->id,
                           .name = keep(past, call->name),
                           .digest = keep(past, call->digest),
                           .code = call->verdict.code,
                           .text = keep(past, call->verdict.text),
                           .goes_on = call->what == CONTROL_CALL_RUN && ok };

    g_array_append_val(past->calls, one);
    if (past->calls->len > MOST_CALLS || past->n_bytes > MOST_BYTES)
        give_up(past);
}

void past_note_end(Scheduler *scheduler, uint32_t epoch, const Verdict *cause)
{
    GArray *const calls = scheduler->past->calls;

    for (guint i = calls->len; i-- > 0;) {
        PastCall *const call = &g_array_index(calls, PastCall, i);

        if (call->what != CONTROL_CALL_RUN || call->id != epoch || !call->goes_on)
            continue;
        call->goes_on = false;
        call->end_code = cause->code;
        call->end_text = keep(scheduler->past, cause->text);
        return;
    }
}

/* Whether a process makes the same call now. What it restores may be another snapshot, if it asks
 * for the newest one, and what it writes, if it asks for all tables. A process may be unable to
 * describe a task of tables that were dropped since: then it gives no digest. */
static bool is_same(const PastCall *call, const ControlPropose *propose)
{
    if (propose->what != call->what)
        return false;
    if (propose->what == CONTROL_CALL_RESTORE || propose->what == CONTROL_CALL_SNAPSHOT)
        return true;
    return strcmp(propose->name, call->name) == 0 &&
           (*propose->digest == '\0' || strcmp(propose->digest, call->digest) == 0);
}

static const char *find_word(ControlCall what)
{
    static const char *const words[CONTROL_CALL_END] = {
        [CONTROL_CALL_CREATE] = "to create ",     [CONTROL_CALL_DROP] = "to drop ",
        [CONTROL_CALL_RUN] = "to run ",           [CONTROL_CALL_MOVE] = "to move ",
        [CONTROL_CALL_BARRIER] = "for a barrier", [CONTROL_CALL_SNAPSHOT] = "to write ",
        [CONTROL_CALL_RESTORE] = "to restore ",
    };

    return words[what];
}

static void refuse(Scheduler *scheduler, uint32_t node, const ControlPropose *propose,
                   const char *text)
{
    scheduler_send(
        scheduler, node,
        &(Control){ .kind = CONTROL_PAST,
                    .past = { .call = propose->call,
                              .outcome = { CONTROL_CODE(RUBATO_ERROR_MISMATCH), text } } });
}

uint32_t past_find_task(const Scheduler *scheduler, const ControlPropose *propose)
{
    const GArray *const calls = scheduler->past->calls;

    if (propose->call == 0 || propose->call > calls->len)
        return 0;
    const PastCall *const call = &g_array_index(calls, PastCall, propose->call - 1);
    return call->goes_on && is_same(call, propose) ? call->id : 0;
}

bool past_answer(Scheduler *scheduler, uint32_t node, const ControlPropose *propose,
                 const char *told)
{
    const PastCalls *const past = scheduler->past;
    const char *const label = scheduler->nodes[node].label;

    if (past->is_given_up) {
        g_autofree char *text =
            g_strdup_printf("%s has joined the run, which has made more calls than are kept for "
                            "those that join: it can serve, and make no call",
                            label);

        refuse(scheduler, node, propose, text);
        return true;
    }
    if (propose->call > past->calls->len)
        return false;
    const PastCall *const call = &g_array_index(past->calls, PastCall, propose->call - 1);
    if (!is_same(call, propose)) {
        const bool is_same_call =
            propose->what == call->what && strcmp(propose->name, call->name) == 0;
        g_autofree char *text = g_strdup_printf(
            "%s has joined the run, and call %" G_GUINT64_FORMAT " of its program is %s%s; that of "
            "the others was %s%s%s: all programs have to make the same calls",
            label, propose->call, find_word(propose->what), propose->name, find_word(call->what),
            call->name, is_same_call ? ", with other arguments" : "");

        refuse(scheduler, node, propose, text);
        return true;
    }
    scheduler_send(scheduler, node,
                   &(Control){ .kind = CONTROL_PAST,
                               .past = { .call = propose->call,
                                         .id = call->id,
                                         .goes_on = call->goes_on,
                                         .outcome = { call->code, call->text },
                                         .end = { call->end_code, call->end_text },
                                         .told = told } });
    return true;
}

/* ---- as bytes ---- */

/* One of the texts, by its number; 0: none. */
static const char *walk_kept(StateWalk *walk, GHashTable *numbers, const GPtrArray *texts,
                             const char *text)
{
    const guint number = text == NULL ? 0 : GPOINTER_TO_UINT(g_hash_table_lookup(numbers, text));
    const uint64_t read = walk_number(walk, number);

    if (!walk_reads(walk) || read == 0)
        return text;
    walk->is_wrong |= read > texts->len;
    return read > texts->len ? NULL : texts->pdata[read - 1];
}

/* The texts in an order of their own. (transfer container) */
static GPtrArray *walk_all_texts(StateWalk *walk, PastCalls *past, GHashTable *numbers)
{
    GPtrArray *const texts = g_ptr_array_new();
    size_t n = walk_count(walk, g_hash_table_size(past->texts));
    GHashTableIter iter;
    gpointer text;

    g_hash_table_iter_init(&iter, past->texts);
    while (!walk_reads(walk) && g_hash_table_iter_next(&iter, &text, NULL)) {
        walk_text(walk, (char **)&text);
        g_ptr_array_add(texts, text);
        g_hash_table_insert(numbers, text, GUINT_TO_POINTER(texts->len));
    }
    for (; walk_reads(walk) && n > 0 && !walk->is_wrong; n--) {
        g_autofree char *read = NULL;

        walk_text(walk, &read);
        if (read != NULL)
            g_ptr_array_add(texts, (gpointer)keep(past, read));
    }
    return texts;
}

void past_walk(StateWalk *walk, PastCalls *past)
{
    g_autoptr(GHashTable) numbers = g_hash_table_new(g_str_hash, g_str_equal);
    g_autoptr(GPtrArray) texts = walk_all_texts(walk, past, numbers);
    const size_t n = walk_count(walk, past->calls->len);

    WALK(walk, past->is_given_up);
    if (walk_reads(walk))
        g_array_set_size(past->calls, (guint)n);
    for (size_t i = 0; i < n; i++) {
        PastCall *const call = &g_array_index(past->calls, PastCall, i);

        if (walk_reads(walk))
            *call = (PastCall){ 0 };
        WALK(walk, call->what);
        WALK(walk, call->id);
        call->name = walk_kept(walk, numbers, texts, call->name);
        call->digest = walk_kept(walk, numbers, texts, call->digest);
        WALK(walk, call->code);
        call->text = walk_kept(walk, numbers, texts, call->text);
        WALK(walk, call->goes_on);
        WALK(walk, call->end_code);
        call->end_text = walk_kept(walk, numbers, texts, call->end_text);
        walk->is_wrong |=
            call->what >= CONTROL_CALL_END || call->name == NULL || call->digest == NULL;
    }
}
