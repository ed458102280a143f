/* The threads that look for requests in buckets.
 *
 * Why each wait ends. The thread waits for a second, for an answer that it is to send, or for its
 * end; and for S3, which s3_client.c bounds. s3_requests_stop waits for the thread: for the request
 * that it is making, and for the answers that are left, of which it sends no more after one that
 * failed. All of these hurry then, and take some seconds if nothing answers.
 *
 * Locks: that of all watches is taken before that of one. The thread takes its own alone, and
 * holds it in no request. */
#include "io/store/s3/s3_requests.h"

#include <pthread.h>
#include <rubato/error.h>
#include <stdatomic.h>
#include <string.h>

#include "io/net/log_sink.h"
#include "io/net/monotonic.h"
#include "io/store/outside_requests.h"
#include "io/store/s3/s3_list.h"
#include "io/store/s3/s3_place.h"

enum {
    LOOK_MS = 1000,
    SEEN_MS = 1500,  /* until others that look so often have seen it, too */
    AGAIN_MS = 5000, /* until the snapshot for it is whole, and its answer has been sent, mostly */
    MOST_TEXT = 4096,
    LOOK_LEFT_MS = 60 * 1000, /* for answers that nobody has read */
    MOST_REMOVED = 100,       /* of these at a time, so that other answers do not wait for long */
};

/* An answer that nobody has read for so long is removed. */
static _Atomic int64_t kept_ms = (int64_t)10 * 60 * 1000;

/* Fewer than this wait at a time, even if somebody makes them without end. */
#define MOST_REQUESTS (1u << 16)

typedef struct {
    char *id;
    int64_t seen_ms;    /* first */
    int64_t counted_ms; /* when s3_requests_ask last counted it; 0: never */
    bool is_there;      /* in the listing that is being taken over */
} Seen;

typedef struct {
    char *id, *text;
} Answer;

typedef struct {
    char *directory;
    pthread_t thread;
    _Atomic bool hurries; /* it is to end */

    /* the thread's alone */
    GPtrArray *left; /* of Seen: answers that are there */
    int64_t look_left_ms;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    GPtrArray *seen;      /* of Seen */
    GHashTable *answered; /* ids that may still be listed */
    GQueue answers;       /* of Answer */
    bool has_news;        /* an answer that has not been tried */
    bool ends;
} Watch;

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static GPtrArray *all; /* of Watch; guarded by all_lock; NULL: none */

static void seen_free(void *data)
{
    Seen *const seen = data;

    g_free(seen->id);
    g_free(seen);
}

static void answer_free(void *data)
{
    Answer *const answer = data;

    g_free(answer->id);
    g_free(answer->text);
    g_free(answer);
}

/* ---- objects ---- */

static bool put(const S3Place *place, const char *name, const char *text, GError **error)
{
    g_autofree char *key = s3_path_below(&place->path, name);

    return s3_place_put(place, key, text, error);
}

static bool remove_object(const S3Place *place, const char *name, GError **error)
{
    g_autofree char *key = s3_path_below(&place->path, name);

    return s3_place_remove(place, key, error);
}

bool s3_requests_put(const char *directory, const char *name, const char *text, GError **error)
{
    g_auto(S3Place) place = { .client = NULL };

    return s3_place_open(&place, directory, error) && put(&place, name, text, error);
}

bool s3_requests_remove(const char *directory, const char *name, GError **error)
{
    g_auto(S3Place) place = { .client = NULL };

    return s3_place_open(&place, directory, error) && remove_object(&place, name, error);
}

char *s3_requests_read(const char *directory, const char *name, GError **error)
{
    g_auto(S3Place) place = { .client = NULL };
    g_auto(S3Answer) answer = { .body = NULL };
    g_autoptr(GError) fault = NULL;
    g_autofree char *key = NULL;

    if (!s3_place_open(&place, directory, error))
        return NULL;
    key = s3_path_below(&place.path, name);
    if (s3_client_ask(place.client,
                      &(S3Request){ .method = S3_GET,
                                    .bucket = place.path.bucket,
                                    .key = key,
                                    .what = "read",
                                    .most = MOST_TEXT },
                      &answer, &fault))
        return answer.body->len > 0 ? g_strndup((const char *)answer.body->data, answer.body->len)
                                    : g_strdup("");
    if (!g_error_matches(fault, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND))
        g_propagate_error(error, g_steal_pointer(&fault));
    return NULL;
}

/* ---- a thread ---- */

static bool open_place(const Watch *watch, S3Place *place, GError **error)
{
    if (!s3_place_open(place, watch->directory, error))
        return false;
    s3_client_hurry_when(place->client, &watch->hurries);
    return true;
}

/* The answer is there before its request is gone. */
static bool send_answer(const Watch *watch, const Answer *answer)
{
    g_autofree char *taken = g_strconcat(OUTSIDE_TAKEN, answer->id, NULL);
    g_autofree char *take = g_strconcat(OUTSIDE_TAKE, answer->id, NULL);
    g_auto(S3Place) place = { .client = NULL };
    g_autoptr(GError) error = NULL;

    if (open_place(watch, &place, &error) && put(&place, taken, answer->text, &error) &&
        remove_object(&place, take, &error))
        return true;
    g_warning("a request for a snapshot gets no answer: %s", error->message);
    return false;
}

/* The lock is held; it is released while an answer is sent. */
static void send_answers(Watch *watch)
{
    bool ok = true;
    Answer *answer;

    watch->has_news = false;
    while (ok && (answer = g_queue_pop_head(&watch->answers)) != NULL) {
        pthread_mutex_unlock(&watch->lock);
        ok = send_answer(watch, answer);
        answer_free(answer);
        pthread_mutex_lock(&watch->lock);
    }
}

static Seen *find_seen(const GPtrArray *all_seen, const char *id)
{
    for (guint i = 0; i < all_seen->len; i++) {
        Seen *const seen = all_seen->pdata[i];

        if (strcmp(seen->id, id) == 0)
            return seen;
    }
    return NULL;
}

/* One that is listed. */
static void see(GPtrArray *all_seen, const char *id)
{
    Seen *seen = find_seen(all_seen, id);

    if (seen == NULL) {
        seen = g_new0(Seen, 1);
        seen->id = g_strdup(id);
        seen->seen_ms = monotonic_ms();
        g_ptr_array_add(all_seen, seen);
    }
    seen->is_there = true;
}

static void begin_listing(const GPtrArray *all_seen)
{
    for (guint i = 0; i < all_seen->len; i++)
        ((Seen *)all_seen->pdata[i])->is_there = false;
}

/* Those that were not listed are gone. */
static void end_listing(GPtrArray *all_seen)
{
    for (guint i = all_seen->len; i-- > 0;)
        if (!((Seen *)all_seen->pdata[i])->is_there)
            g_ptr_array_remove_index_fast(all_seen, i);
}

/* The lock is held. Answers are sent before the thread looks: so one that is no longer listed is
 * gone, and need not be remembered. */
static void take_over(Watch *watch, const GPtrArray *ids)
{
    GHashTable *const still = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    GHashTableIter all_ids;
    void *id;

    begin_listing(watch->seen);
    for (guint i = 0; i < ids->len; i++)
        if (g_hash_table_contains(watch->answered, ids->pdata[i]))
            g_hash_table_add(still, g_strdup(ids->pdata[i]));
        else
            see(watch->seen, ids->pdata[i]);
    end_listing(watch->seen);
    /* those that were answered while the thread looked */
    for (GList *link = watch->answers.head; link != NULL; link = link->next)
        g_hash_table_add(still, g_strdup(((Answer *)link->data)->id));
    g_hash_table_iter_init(&all_ids, watch->answered);
    while (g_hash_table_iter_next(&all_ids, &id, NULL))
        if (!g_hash_table_contains(still, id))
            g_hash_table_iter_remove(&all_ids);
    g_hash_table_unref(still);
}

/* Answers that nobody has read since the thread first saw them: those of this run, and of earlier
 * ones. */
static void remove_old(const Watch *watch, const S3Place *place, int64_t kept)
{
    const int64_t now_ms = monotonic_ms();
    unsigned n = 0;

    for (guint i = 0; i < watch->left->len && n < MOST_REMOVED; i++) {
        const Seen *const seen = watch->left->pdata[i];
        g_autofree char *name = g_strconcat(OUTSIDE_TAKEN, seen->id, NULL);

        if (now_ms - seen->seen_ms < kept)
            continue;
        (void)remove_object(place, name, NULL);
        n++;
    }
}

/* Ids of the objects whose names begin so. */
static bool list_ids(const S3Place *place, const char *prefix, GPtrArray *ids, GError **error)
{
    g_autoptr(GPtrArray) keys = g_ptr_array_new_with_free_func(g_free);
    g_autofree char *before = s3_path_below(&place->path, prefix);

    if (!s3_list_at_most(place->client, place->path.bucket, before, S3_LIST_MOST, MOST_REQUESTS,
                         keys, NULL, error))
        return false;
    for (guint i = 0; i < keys->len; i++)
        g_ptr_array_add(ids, g_strdup((const char *)keys->pdata[i] + strlen(before)));
    return true;
}

/* Returns whether S3 has answered. */
static bool look(Watch *watch, bool tells)
{
    g_autoptr(GPtrArray) ids = g_ptr_array_new_with_free_func(g_free);
    g_auto(S3Place) place = { .client = NULL };
    g_autoptr(GError) error = NULL;

    if (open_place(watch, &place, &error) && list_ids(&place, OUTSIDE_TAKE, ids, &error)) {
        pthread_mutex_lock(&watch->lock);
        take_over(watch, ids);
        pthread_mutex_unlock(&watch->lock);
        return true;
    }
    if (tells)
        g_message("nobody can ask for a snapshot for now: %s", error->message);
    return false;
}

/* Looks for answers less often than for requests, because S3 takes money for it. What does not
 * succeed is tried the next time. */
static void look_for_left(Watch *watch)
{
    const int64_t now_ms = monotonic_ms();
    g_autoptr(GPtrArray) ids = g_ptr_array_new_with_free_func(g_free);
    g_auto(S3Place) place = { .client = NULL };

    if (now_ms < watch->look_left_ms)
        return;
    /* relaxed: it is a number, and nothing else follows from it */
    const int64_t kept = atomic_load_explicit(&kept_ms, memory_order_relaxed);
    watch->look_left_ms = now_ms + MIN(LOOK_LEFT_MS, kept);
    if (!open_place(watch, &place, NULL) || !list_ids(&place, OUTSIDE_TAKEN, ids, NULL))
        return;
    begin_listing(watch->left);
    for (guint i = 0; i < ids->len; i++)
        see(watch->left, ids->pdata[i]);
    end_listing(watch->left);
    remove_old(watch, &place, kept);
}

static void *run(void *data)
{
    Watch *const watch = data;
    bool hears = true;

    pthread_mutex_lock(&watch->lock);
    while (!watch->ends) {
        send_answers(watch);
        pthread_mutex_unlock(&watch->lock);
        hears = look(watch, /* tells= */ hears);
        if (hears)
            look_for_left(watch);
        pthread_mutex_lock(&watch->lock);
        const int64_t until_ms = monotonic_ms() + LOOK_MS;
        while (!watch->ends && !watch->has_news && monotonic_ms() < until_ms)
            monotonic_wait(&watch->changed, &watch->lock, until_ms);
    }
    send_answers(watch);
    pthread_mutex_unlock(&watch->lock);
    return NULL;
}

/* ---- all of them ---- */

static void watch_free(void *data)
{
    Watch *const watch = data;

    pthread_mutex_lock(&watch->lock);
    watch->ends = true;
    atomic_store_explicit(&watch->hurries, true, memory_order_relaxed); /* it is asked again */
    pthread_cond_signal(&watch->changed);
    pthread_mutex_unlock(&watch->lock);
    pthread_join(watch->thread, NULL);
    pthread_cond_destroy(&watch->changed);
    pthread_mutex_destroy(&watch->lock);
    g_ptr_array_unref(watch->seen);
    g_ptr_array_unref(watch->left);
    g_hash_table_unref(watch->answered);
    g_queue_clear_full(&watch->answers, answer_free);
    g_free(watch->directory);
    g_free(watch);
}

/* NULL: there is no thread for it. */
static Watch *watch_new(const char *directory)
{
    Watch *const watch = g_new0(Watch, 1);

    watch->directory = g_strdup(directory);
    watch->seen = g_ptr_array_new_with_free_func(seen_free);
    watch->left = g_ptr_array_new_with_free_func(seen_free);
    watch->answered = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    g_queue_init(&watch->answers);
    pthread_mutex_init(&watch->lock, NULL);
    monotonic_cond_init(&watch->changed);
    if (log_sink_start_thread(&watch->thread, run, watch) == 0)
        return watch;
    pthread_cond_destroy(&watch->changed);
    pthread_mutex_destroy(&watch->lock);
    g_ptr_array_unref(watch->seen);
    g_ptr_array_unref(watch->left);
    g_hash_table_unref(watch->answered);
    g_free(watch->directory);
    g_free(watch);
    return NULL;
}

/* Both locks are held afterwards; NULL: only the first one. */
static Watch *hold(const char *directory)
{
    Watch *watch = NULL;

    pthread_mutex_lock(&all_lock);
    for (guint i = 0; all != NULL && i < all->len && watch == NULL; i++)
        if (strcmp(((Watch *)all->pdata[i])->directory, directory) == 0)
            watch = all->pdata[i];
    if (watch == NULL && (watch = watch_new(directory)) != NULL) {
        if (all == NULL)
            all = g_ptr_array_new_with_free_func(watch_free);
        g_ptr_array_add(all, watch);
    }
    if (watch != NULL)
        pthread_mutex_lock(&watch->lock);
    return watch;
}

static void release(Watch *watch)
{
    if (watch != NULL)
        pthread_mutex_unlock(&watch->lock);
    pthread_mutex_unlock(&all_lock);
}

GPtrArray *s3_requests_list(const char *directory)
{
    GPtrArray *const ids = g_ptr_array_new_with_free_func(g_free);
    Watch *const watch = hold(directory);

    for (guint i = 0; watch != NULL && i < watch->seen->len; i++)
        g_ptr_array_add(ids, g_strdup(((Seen *)watch->seen->pdata[i])->id));
    release(watch);
    return ids;
}

bool s3_requests_ask(const char *directory)
{
    const int64_t now_ms = monotonic_ms();
    Watch *const watch = hold(directory);
    bool is_asked = false;

    for (guint i = 0; watch != NULL && i < watch->seen->len; i++) {
        Seen *const seen = watch->seen->pdata[i];

        is_asked |= now_ms - seen->seen_ms >= SEEN_MS &&
                    (seen->counted_ms == 0 || now_ms - seen->counted_ms >= AGAIN_MS);
    }
    /* one snapshot is for all that are there */
    for (guint i = 0; is_asked && i < watch->seen->len; i++)
        ((Seen *)watch->seen->pdata[i])->counted_ms = now_ms;
    release(watch);
    return is_asked;
}

void s3_requests_answer(const char *directory, const GPtrArray *ids, const char *text)
{
    Watch *const watch = ids->len > 0 ? hold(directory) : NULL;

    if (ids->len == 0)
        return;
    for (guint i = 0; watch != NULL && i < ids->len; i++) {
        Answer *const answer = g_new0(Answer, 1);

        answer->id = g_strdup(ids->pdata[i]);
        answer->text = g_strdup(text);
        g_queue_push_tail(&watch->answers, answer);
        g_hash_table_add(watch->answered, g_strdup(answer->id));
        Seen *const seen = find_seen(watch->seen, answer->id);
        if (seen != NULL)
            g_ptr_array_remove(watch->seen, seen);
    }
    if (watch != NULL) {
        watch->has_news = true;
        pthread_cond_signal(&watch->changed);
    }
    release(watch);
}

void s3_requests_keep_answers(int64_t ms)
{
    atomic_store_explicit(&kept_ms, ms, memory_order_relaxed); /* see look_for_left */
}

void s3_requests_stop(void)
{
    GPtrArray *ended;

    pthread_mutex_lock(&all_lock);
    ended = g_steal_pointer(&all);
    pthread_mutex_unlock(&all_lock);
    if (ended != NULL)
        g_ptr_array_unref(ended);
}
