/* See the header. */
#include "apps/rubato/history/history_call_name.h"

CallName call_name_of(const HistorySource *source, uint64_t clock, uint64_t number)
{
    const bool is_engine = source->rank == RECORD_ENGINE;

    return (CallName){ .epoch = is_engine ? 0 : source->epoch,
                       .rank = is_engine ? source->node : source->rank,
                       .clock = is_engine ? 0 : clock,
                       .number = number };
}

int call_name_compare(const CallName *a, const CallName *b)
{
    if (a->epoch != b->epoch)
        return a->epoch < b->epoch ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->clock != b->clock)
        return a->clock < b->clock ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

void call_name_complain(const History *history, const HistoryTable *table, const char *rule,
                        const CallName *name, const char *format, ...)
{
    const bool is_engine = name->epoch == 0;
    const HistorySource source = { .epoch = name->epoch,
                                   .rank = is_engine ? RECORD_ENGINE : name->rank,
                                   .node = is_engine ? name->rank : 0 };
    va_list arguments;

    va_start(arguments, format);
    g_autofree char *text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    history->complain(history->user, rule, table, &source, name->clock, NULL, text);
}
