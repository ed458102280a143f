/* See add_answers.h.
 *
 * Thread: the part's owner. */
#include "engine/server/replicas/add_answers.h"

#include "io/memory_room.h"

typedef struct {
    GQueue list; /* of AddAnswer */
    size_t n_bytes;
    bool descends; /* some place is before an earlier one's: a process in the place of a lost one
                    * has made requests again whose answers were kept no longer */
} OfWorker;

struct AddAnswers {
    GHashTable *of_workers; /* of OfWorker, by worker */
};

static void drop_oldest(OfWorker *of)
{
    AddAnswer *const oldest = of->list.head->data;

    g_queue_unlink(&of->list, &oldest->link);
    of->n_bytes -= oldest->n_bytes;
    g_free(oldest);
}

static void free_of_worker(void *data)
{
    OfWorker *const of = data;

    while (of->list.head != NULL)
        drop_oldest(of);
    g_free(of);
}

void add_answers_free(AddAnswers *answers)
{
    if (answers == NULL)
        return;
    g_hash_table_unref(answers->of_workers);
    g_free(answers);
}

static OfWorker *find_worker(const AddAnswers *answers, uint32_t worker)
{
    return answers == NULL ? NULL
                           : g_hash_table_lookup(answers->of_workers, GUINT_TO_POINTER(worker));
}

static OfWorker *add_worker(AddAnswers **answers, uint32_t worker)
{
    OfWorker *const of = g_new0(OfWorker, 1);

    if (*answers == NULL) {
        *answers = g_new(AddAnswers, 1);
        (*answers)->of_workers = g_hash_table_new_full(NULL, NULL, NULL, free_of_worker);
    }
    g_hash_table_insert((*answers)->of_workers, GUINT_TO_POINTER(worker), of);
    return of;
}

static bool is_before(const AddAsked *some, const AddAsked *other)
{
    return some->clock < other->clock || (some->clock == other->clock && some->at < other->at);
}

AddAnswer *add_answers_keep(AddAnswers **answers, const AddAsked *asked, size_t n_bytes)
{
    AddAnswer *const answer =
        n_bytes > ADD_ANSWERS_BYTES ? NULL : memory_try_malloc(sizeof *answer + n_bytes);
    OfWorker *of;

    if (answer == NULL)
        return NULL;
    of = find_worker(*answers, asked->worker);
    if (of == NULL)
        of = add_worker(answers, asked->worker);
    if (of->list.tail != NULL) {
        const AddAnswer *const last = of->list.tail->data;

        of->descends |= is_before(asked, &last->asked);
    }
    *answer = (AddAnswer){ .asked = *asked, .n_bytes = n_bytes, .link.data = answer };
    g_queue_push_tail_link(&of->list, &answer->link);
    of->n_bytes += n_bytes;
    while (of->list.length > ADD_ANSWERS_MOST || of->n_bytes > ADD_ANSWERS_BYTES)
        drop_oldest(of);
    return answer;
}

AddAnswer *add_answers_find(const AddAnswers *answers, uint32_t worker, uint64_t sequence,
                            size_t n_bytes)
{
    const OfWorker *const of = find_worker(answers, worker);

    for (const GList *at = of == NULL ? NULL : of->list.tail; at != NULL; at = at->prev) {
        AddAnswer *const answer = at->data;

        if (answer->asked.sequence == sequence)
            return answer->n_bytes == n_bytes ? answer : NULL;
    }
    return NULL;
}

/* Where places ascend, a request that is new looks at the last answer alone. */
AddAnswer *add_answers_repeat(const AddAnswers *answers, const AddAsked *asked, size_t n_bytes)
{
    const OfWorker *const of = find_worker(answers, asked->worker);

    for (const GList *at = of == NULL ? NULL : of->list.tail; at != NULL; at = at->prev) {
        AddAnswer *const answer = at->data;

        if (!of->descends && is_before(&answer->asked, asked))
            break;
        if (answer->asked.clock == asked->clock && answer->asked.at == asked->at &&
            answer->n_bytes == n_bytes) {
            answer->asked.sequence = asked->sequence;
            return answer;
        }
    }
    return NULL;
}

void add_answers_each(const AddAnswers *answers, void (*take)(void *user, const AddAnswer *answer),
                      void *user)
{
    GHashTableIter iter;
    void *value;

    if (answers == NULL)
        return;
    g_hash_table_iter_init(&iter, answers->of_workers);
    while (g_hash_table_iter_next(&iter, NULL, &value))
        for (const GList *at = ((const OfWorker *)value)->list.head; at != NULL; at = at->next)
            take(user, at->data);
}
