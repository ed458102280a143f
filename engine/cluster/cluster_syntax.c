/* Checks a cluster file's syntax by recursive descent over its bytes; nothing is kept of it.
 *
 * Why this comes before libconfig: for a wrong text libconfig only says "syntax error", with the
 * number of the next line, and it leaks its strings. Its @include ends the process if it finds a
 * directory. It recurses as deep as the file's groups, and searches a whole group for each new
 * name. It reads 010 as eight, and cuts every number to 32 bits without an error. So libconfig only
 * gets a text that it accepts. The language here is the part of libconfig's that a cluster file
 * needs: groups, lists, strings, decimal numbers, booleans, comments.
 *
 * Thread: any, no state beyond the call. */
#include "engine/cluster/cluster_syntax.h"

#include <string.h>

#include "engine/cluster/cluster_fault.h"

/* Deepest sensible file: cluster, nodes, node, value. */
#define MAX_DEPTH 8u
#define MAX_NAMES_OF_A_GROUP 32u
#define MAX_DIGITS 9u /* any such number fits 32 bits */
#define MAX_NAME_LENGTH 64u

typedef struct {
    const char *at;
    const char *end;
    unsigned line;
    unsigned depth;
    ClusterFaults faults;
} Scan;

typedef struct {
    const char *start;
    size_t length;
    unsigned line;
} Name;

static bool check_settings(Scan *scan, bool in_group);
static bool check_value(Scan *scan, const Name *name);

static bool at_end(const Scan *scan)
{
    return scan->at == scan->end;
}

static bool looking_at(const Scan *scan, const char *what)
{
    const size_t length = strlen(what);

    return (size_t)(scan->end - scan->at) >= length && memcmp(scan->at, what, length) == 0;
}

static bool is_word_char(char c)
{
    return g_ascii_isalnum(c) || c == '_' || c == '-' || c == '+' || c == '.';
}

/* Describes what is at the scan's position, for a message. */
static char *describe(const Scan *scan)
{
    size_t length = 0;

    if (at_end(scan))
        return g_strdup("the end of the file");
    if (*scan->at == '"')
        return g_strdup("a string");
    while (length < 24 && scan->at + length < scan->end && is_word_char(scan->at[length]))
        length++;
    if (length == 0) {
        /* The text is valid UTF-8, so a whole character can be shown. */
        length = (size_t)(g_utf8_next_char(scan->at) - scan->at);
        if (g_ascii_iscntrl(*scan->at))
            return g_strdup_printf("a control character (0x%02x)", (unsigned)(guchar)*scan->at);
    }
    return g_strdup_printf("'%.*s'", (int)length, scan->at);
}

static bool skip_block_comment(Scan *scan)
{
    const unsigned line = scan->line;

    for (scan->at += 2; !at_end(scan); scan->at++) {
        if (looking_at(scan, "*/")) {
            scan->at += 2;
            return true;
        }
        if (*scan->at == '\n')
            scan->line++;
    }
    return cluster_refuse(&scan->faults, line,
                          "the comment that begins here with /* never ends; close it with */");
}

/* Skips white space and comments. */
static bool skip_blank(Scan *scan)
{
    while (!at_end(scan)) {
        if (*scan->at == '\n') {
            scan->line++;
            scan->at++;
        } else if (strchr(" \t\r\f", *scan->at) != NULL) {
            scan->at++;
        } else if (*scan->at == '#' || looking_at(scan, "//")) {
            while (!at_end(scan) && *scan->at != '\n')
                scan->at++;
        } else if (looking_at(scan, "/*")) {
            if (!skip_block_comment(scan))
                return false;
        } else {
            break;
        }
    }
    return true;
}

static bool check_string(Scan *scan)
{
    for (scan->at++; !at_end(scan) && *scan->at != '\n'; scan->at++) {
        if (*scan->at == '"') {
            scan->at++;
            return true;
        }
        if (*scan->at == '\\' && scan->at + 1 < scan->end && scan->at[1] != '\n')
            scan->at++;
    }
    return cluster_refuse(&scan->faults, scan->line,
                          "the string does not end on its line; close it with \"");
}

static bool equals_ignoring_case(const char *start, size_t length, const char *word)
{
    return strlen(word) == length && g_ascii_strncasecmp(start, word, length) == 0;
}

static bool is_boolean(const char *start, size_t length)
{
    return equals_ignoring_case(start, length, "true") ||
           equals_ignoring_case(start, length, "false");
}

static size_t count_digits(const char *at, const char *end)
{
    size_t n = 0;

    while (at + n < end && g_ascii_isdigit(at[n]))
        n++;
    return n;
}

/* An optional "e" with its digits; whether it goes up to the end. */
static bool is_exponent(const char *at, const char *end)
{
    if (at == end)
        return true;
    if (*at != 'e' && *at != 'E')
        return false;
    at++;
    if (at < end && (*at == '+' || *at == '-'))
        at++;

    const size_t digits = count_digits(at, end);
    return digits > 0 && digits <= 3 && at + digits == end;
}

static bool check_number(Scan *scan, const char *start, const char *end)
{
    const int shown = (int)MIN(end - start, 40);
    const char *at = start;

    if (*at == '+' || *at == '-')
        at++;

    const size_t digits = count_digits(at, end);
    if (digits == 0)
        return cluster_refuse(&scan->faults, scan->line,
                              "'%.*s' is no value; write a number, or a text in \"\"", shown,
                              start);
    if (digits > MAX_DIGITS)
        return cluster_refuse(&scan->faults, scan->line, "the number %.*s is too large", shown,
                              start);
    if (*at == '0' && at + 1 < end && (digits > 1 || at[1] == 'x' || at[1] == 'X'))
        return cluster_refuse(&scan->faults, scan->line,
                              "the number %.*s begins with a zero; write numbers in decimal, "
                              "without leading zeros",
                              shown, start);
    at += digits;
    if (at == end)
        return true;
    if (*at == '.') {
        const size_t fraction = count_digits(at + 1, end);
        if (fraction > 0 && is_exponent(at + 1 + fraction, end))
            return true;
    } else if (equals_ignoring_case(at, (size_t)(end - at), "l") ||
               equals_ignoring_case(at, (size_t)(end - at), "ll")) {
        return cluster_refuse(&scan->faults, scan->line, "write the number %.*s without the L",
                              shown, start);
    }
    return cluster_refuse(&scan->faults, scan->line,
                          "'%.*s' is no number; write digits alone, or a text in \"\"", shown,
                          start);
}

static bool check_word(Scan *scan)
{
    const char *start = scan->at;

    while (!at_end(scan) && is_word_char(*scan->at))
        scan->at++;
    if (g_ascii_isalpha(*start)) {
        const size_t length = (size_t)(scan->at - start);
        if (is_boolean(start, length))
            return true;
        return cluster_refuse(&scan->faults, scan->line,
                              "the text %.*s has no quotes; write \"%.*s\"", (int)MIN(length, 40),
                              start, (int)MIN(length, 40), start);
    }
    return check_number(scan, start, scan->at);
}

static bool check_list(Scan *scan, const Name *name)
{
    const unsigned line = scan->line;

    scan->at++;
    if (!skip_blank(scan))
        return false;
    if (!at_end(scan) && *scan->at == ')') {
        scan->at++;
        return true;
    }
    for (;;) {
        if (!skip_blank(scan))
            return false;
        if (!at_end(scan) && *scan->at == ')')
            return cluster_refuse(&scan->faults, scan->line,
                                  "a comma before ')'; leave the last comma out");
        if (!check_value(scan, name) || !skip_blank(scan))
            return false;
        if (at_end(scan))
            return cluster_refuse(&scan->faults, line,
                                  "the list that begins here never ends; close it with ')'");
        if (*scan->at == ')') {
            scan->at++;
            return true;
        }
        if (*scan->at != ',') {
            g_autofree char *found = describe(scan);
            return cluster_refuse(&scan->faults, scan->line,
                                  "%s in a list; write ',' between its entries and ')' "
                                  "after the last",
                                  found);
        }
        scan->at++;
    }
}

static bool check_group(Scan *scan)
{
    const unsigned line = scan->line;

    scan->at++;
    if (!check_settings(scan, /* in_group= */ true))
        return false;
    if (at_end(scan))
        return cluster_refuse(&scan->faults, line,
                              "the group that begins here never ends; close it with '}'");
    scan->at++;
    return true;
}

static bool check_value(Scan *scan, const Name *name)
{
    bool fine;

    if (!at_end(scan) && *scan->at == '"') {
        do {
            fine = check_string(scan) && skip_blank(scan);
        } while (fine && !at_end(scan) && *scan->at == '"'); /* strings in a row are one */
        return fine;
    }
    if (!at_end(scan) && is_word_char(*scan->at) && *scan->at != '_')
        return check_word(scan);
    if (!at_end(scan) && *scan->at == '[')
        return cluster_refuse(&scan->faults, scan->line,
                              "an array in [ ] after '%.*s'; write a list in ( )",
                              (int)name->length, name->start);
    if (!at_end(scan) && (*scan->at == '{' || *scan->at == '(')) {
        if (scan->depth == MAX_DEPTH)
            return cluster_refuse(&scan->faults, scan->line,
                                  "groups and lists deeper than %u in one another", MAX_DEPTH);
        scan->depth++;
        fine = *scan->at == '{' ? check_group(scan) : check_list(scan, name);
        scan->depth--;
        return fine;
    }

    g_autofree char *found = describe(scan);
    return cluster_refuse(&scan->faults, scan->line,
                          "%s where the value of '%.*s' should be; write a number, a text in \"\", "
                          "a group in { } or a list in ( )",
                          found, (int)name->length, name->start);
}

static bool check_name(Scan *scan, Name *name)
{
    const char *start = scan->at;

    if (looking_at(scan, "@include"))
        return cluster_refuse(
            &scan->faults, scan->line,
            "@include in a cluster file; write its text here, for the nodes compare "
            "this one file");
    if (!g_ascii_isalpha(*start)) {
        g_autofree char *found = describe(scan);
        return cluster_refuse(&scan->faults, scan->line,
                              "%s where a key should be; write key = value;", found);
    }
    while (!at_end(scan) && (g_ascii_isalnum(*scan->at) || *scan->at == '_' || *scan->at == '-'))
        scan->at++;
    name->start = start;
    name->length = (size_t)(scan->at - start);
    name->line = scan->line;
    if (name->length > MAX_NAME_LENGTH)
        return cluster_refuse(&scan->faults, scan->line, "a key of %zu letters: %.*s...",
                              name->length, 24, start);
    if (is_boolean(start, name->length))
        return cluster_refuse(&scan->faults, scan->line, "'%.*s' is a value and cannot be a key",
                              (int)name->length, start);
    return true;
}

/* name = value ; with the terminator being optional, as it is in libconfig. */
static bool check_setting(Scan *scan, const Name *name)
{
    if (!skip_blank(scan))
        return false;
    if (at_end(scan) || (*scan->at != '=' && *scan->at != ':')) {
        g_autofree char *found = describe(scan);
        return cluster_refuse(&scan->faults, scan->line, "%s after '%.*s'; write %.*s = value;",
                              found, (int)name->length, name->start, (int)name->length,
                              name->start);
    }
    scan->at++;
    if (!skip_blank(scan) || !check_value(scan, name) || !skip_blank(scan))
        return false;
    if (!at_end(scan) && (*scan->at == ';' || *scan->at == ','))
        scan->at++;
    return true;
}

static bool check_settings(Scan *scan, bool in_group)
{
    Name names[MAX_NAMES_OF_A_GROUP];
    size_t n_names = 0;

    for (;;) {
        Name name = { .start = scan->at, .line = scan->line };

        if (!skip_blank(scan))
            return false;
        if (at_end(scan) || (in_group && *scan->at == '}'))
            return true;
        if (!check_name(scan, &name))
            return false;
        for (size_t i = 0; i < n_names; i++)
            if (names[i].length == name.length &&
                memcmp(names[i].start, name.start, name.length) == 0)
                return cluster_refuse(
                    &scan->faults, name.line,
                    "'%.*s' is here twice, first on line %u; leave one of them out",
                    (int)name.length, name.start, names[i].line);
        if (n_names == MAX_NAMES_OF_A_GROUP)
            return cluster_refuse(&scan->faults, name.line, "more than %u keys in one group",
                                  MAX_NAMES_OF_A_GROUP);
        names[n_names++] = name;
        if (!check_setting(scan, &name))
            return false;
    }
}

bool cluster_syntax_check(const char *text, size_t length, const char *path, GError **error)
{
    Scan scan = {
        .at = text, .end = text + length, .line = 1, .depth = 0, .faults = { path, error }
    };
    const char *valid_end;

    if (!g_utf8_validate(text, (gssize)length, &valid_end)) {
        unsigned line = 1;
        for (const char *at = text; at < valid_end; at++)
            line += *at == '\n';
        return cluster_refuse(&scan.faults, line,
                              "a byte that is no text (0x%02x); a cluster file is UTF-8",
                              (unsigned)(guchar)*valid_end);
    }
    return check_settings(&scan, /* in_group= */ false);
}
