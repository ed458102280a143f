/* What a node tells `rubato run`, which has started it: that the run goes on without a lost node,
 * and that it has come to its end.
 *
 * The news is a sequence of bytes in the node's standard error, which terminals leave out if they
 * ever see it. So it comes from nodes of other machines, too. The launcher takes it out of its
 * line. The environment variable LAUNCHER_NEWS_VARIABLE tells a node that somebody listens.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_LAUNCH_LAUNCHER_NEWS_H
#define RUBATO_ENGINE_LAUNCH_LAUNCHER_NEWS_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#define LAUNCHER_NEWS_VARIABLE "RUBATO_LAUNCHER"

/* A node without which the run goes on; or that the run has ended: all nodes have left it, or were
 * lost, and those that live need none of the others. Several nodes tell of it. */
typedef struct {
    bool has_ended;
    uint32_t id;          /* of the node that is lost; else 0 */
    uint64_t incarnation; /* which process of the node is lost: none other has had this number */
} LauncherNews;

/* The run goes on without that process of the node. */
void launcher_news_tell_lost(uint32_t id, uint64_t incarnation);

/* A run that goes on without lost nodes has ended. */
void launcher_news_tell_end(void);

/* Takes the first news out of a line. Returns whether there was one. */
bool launcher_news_take(GString *line, LauncherNews *news);

#endif
