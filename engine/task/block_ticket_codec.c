/* Tickets as lines of text. Runs on the caller's thread and keeps no state. */
#include "engine/task/block_ticket_codec.h"

#include <assert.h>
#include <string.h>

#include "io/number_text.h"

#define NUMBER_MAX_DIGITS 20u

static bool says_clock(BlockTicketEvent news)
{
    return news == BLOCK_TICKET_CUT_BY_CLOCK || news == BLOCK_TICKET_ENDED;
}

static void write_ticket(GString *text, const BlockTicket *ticket)
{
    g_string_append_printf(text, "%u %u %" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT, ticket->epoch,
                           ticket->input, ticket->block, ticket->n_read);
    if (ticket->end > 0)
        g_string_append_printf(text, " %" G_GUINT64_FORMAT, ticket->end);
    g_string_append_c(text, '\n');
}

void block_ticket_write(GString *text, BlockTicketEvent news, const BlockTicket *ticket)
{
    assert(!says_clock(news));
    g_string_append_c(text, (char)news);
    write_ticket(text, ticket);
}

void block_ticket_write_clock(GString *text, BlockTicketEvent news, uint64_t clock,
                              const BlockTicket *ticket)
{
    assert(says_clock(news));
    g_string_append_printf(text, "%c%" G_GUINT64_FORMAT " ", (char)news, clock);
    write_ticket(text, ticket);
}

bool block_ticket_read_number(const char **text, char behind, uint64_t max, uint64_t *number)
{
    const size_t n_digits = strspn(*text, "0123456789");
    uint64_t read;
    g_autofree char *digits = NULL;

    if (n_digits == 0 || n_digits > NUMBER_MAX_DIGITS || (*text)[n_digits] != behind)
        return false;
    digits = g_strndup(*text, n_digits);
    if (!number_text_read(digits, 0, max, &read))
        return false;
    *number = read;
    *text += n_digits + 1;
    return true;
}

bool block_ticket_read(const char **text, BlockTicketEvent *news, uint64_t *clock,
                       BlockTicket *ticket)
{
    const char *at = *text;
    uint64_t epoch, input, block, n_read, end = 0;

    if (*at == '\0' || strchr("dfbackpue", *at) == NULL)
        return false;
    *news = (BlockTicketEvent)*at++;
    *clock = 0;
    if ((says_clock(*news) && !block_ticket_read_number(&at, ' ', UINT64_MAX, clock)) ||
        !block_ticket_read_number(&at, ' ', UINT32_MAX, &epoch) ||
        !block_ticket_read_number(&at, ' ', UINT32_MAX, &input) ||
        !block_ticket_read_number(&at, ' ', UINT64_MAX, &block) ||
        (!block_ticket_read_number(&at, '\n', UINT64_MAX, &n_read) &&
         (!block_ticket_read_number(&at, ' ', UINT64_MAX, &n_read) ||
          !block_ticket_read_number(&at, '\n', UINT64_MAX, &end) || end < n_read)))
        return false;
    *ticket = (BlockTicket){ (uint32_t)epoch, (uint32_t)input, block, n_read, end };
    *text = at;
    return true;
}
