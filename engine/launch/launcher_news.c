/* See launcher_news.h. The sequence is an application program command of ECMA-48: ESC _ … ESC \. */
#include "engine/launch/launcher_news.h"

#include <string.h>
#include <unistd.h>

#define BEGIN "\033_rubato "
#define END "\033\\"
#define LOST "lost "
#define ENDED "ended"
#define SERVED "served "

static void tell(const char *text)
{
    /* In one piece: a pipe takes so few bytes at once. If nobody reads it, nobody waits for it. */
    if (g_getenv(LAUNCHER_NEWS_VARIABLE) != NULL)
        (void)!write(STDERR_FILENO, text, strlen(text));
}

void launcher_news_tell_lost(uint32_t id, uint64_t incarnation)
{
    g_autofree char *text =
        g_strdup_printf(BEGIN LOST "%u %" G_GUINT64_FORMAT END "\n", id, incarnation);

    tell(text);
}

void launcher_news_tell_end(void)
{
    tell(BEGIN ENDED END "\n");
}

void launcher_news_tell_served(uint32_t id)
{
    g_autofree char *text = g_strdup_printf(BEGIN SERVED "%u" END "\n", id);

    tell(text);
}

static bool read_number(const char *text, guint64 most, guint64 *number)
{
    return g_ascii_string_to_unsigned(text, 10, 0, most, number, NULL);
}

static bool read_news(const char *text, LauncherNews *news)
{
    guint64 id, incarnation;

    if (strcmp(text, ENDED) == 0) {
        *news = (LauncherNews){ .kind = LAUNCHER_NEWS_ENDED };
        return true;
    }
    if (g_str_has_prefix(text, SERVED)) {
        if (!read_number(text + strlen(SERVED), UINT32_MAX, &id))
            return false;
        *news = (LauncherNews){ .kind = LAUNCHER_NEWS_SERVED, .id = (uint32_t)id };
        return true;
    }
    if (!g_str_has_prefix(text, LOST))
        return false;
    g_auto(GStrv) numbers = g_strsplit(text + strlen(LOST), " ", -1);
    if (g_strv_length(numbers) != 2 || !read_number(numbers[0], UINT32_MAX, &id) ||
        !read_number(numbers[1], UINT64_MAX, &incarnation))
        return false;
    *news = (LauncherNews){ .kind = LAUNCHER_NEWS_LOST,
                            .id = (uint32_t)id,
                            .incarnation = incarnation };
    return true;
}

bool launcher_news_take(GString *line, LauncherNews *news)
{
    const char *const begin = strstr(line->str, BEGIN);
    const char *const end = begin == NULL ? NULL : strstr(begin, END);

    if (end == NULL)
        return false;
    g_autofree char *text = g_strndup(begin + strlen(BEGIN), (gsize)(end - begin) - strlen(BEGIN));
    if (!read_news(text, news))
        return false;
    g_string_erase(line, begin - line->str, end - begin + (gssize)strlen(END));
    return true;
}
