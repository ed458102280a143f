/* A list that is searched from its begin: it is asked once for each shard and worker at most, and
 * never if all is well. */
#include "engine/server/no_numbers.h"

typedef struct {
    uint32_t table, worker;
} Told;

void no_numbers_init(NoNumbers *numbers)
{
    pthread_mutex_init(&numbers->lock, NULL);
    numbers->told = g_array_new(FALSE, FALSE, sizeof(Told));
}

void no_numbers_clear(NoNumbers *numbers)
{
    if (numbers->told == NULL)
        return;
    g_clear_pointer(&numbers->told, g_array_unref);
    pthread_mutex_destroy(&numbers->lock);
}

static bool contains(const GArray *told, uint32_t table, uint32_t worker)
{
    for (guint i = 0; i < told->len; i++) {
        const Told *one = &g_array_index(told, Told, i);

        if (one->table == table && one->worker == worker)
            return true;
    }
    return false;
}

bool no_numbers_are_first(NoNumbers *numbers, uint32_t table, uint32_t worker)
{
    const Told one = { table, worker };

    pthread_mutex_lock(&numbers->lock);
    const bool are_first = !contains(numbers->told, table, worker);
    if (are_first)
        g_array_append_val(numbers->told, one);
    pthread_mutex_unlock(&numbers->lock);
    return are_first;
}
