# Draws three workers over time under one consistency model: when each iteration's Get is answered
# follows from the model's rule, so the picture cannot say anything else than the rule does.
# usage: awk -v model=asp|bsp|ssp|sparse_ssp [-v staleness=N] [-v speculation=N] -f timeline.awk

function max(a, b) { return a > b ? a : b }

# When every worker has finished iteration i, and who is the last.
function all_finished(i,    v, last) {
    if (i < 0)
        return 0
    for (v = 0; v < n_workers; v++)
        if (finish[v, i] > last) {
            last = finish[v, i]
            releaser = v
        }
    return last
}

# When nobody but worker w has an unfinished iteration up to `last` that uses the key.
function key_is_free(key, w, last,    v, i, free) {
    for (v = 0; v < n_workers; v++)
        for (i = 0; v != w && i <= last; i++)
            if (key_of[v, i] == key && finish[v, i] > free) {
                free = finish[v, i]
                key_releaser = v
            }
    return free + 0
}

# When worker w's Get at clock c may be answered.
function released(w, c,    by_clock, by_key) {
    if (model == "asp")
        return 0
    if (model == "bsp")
        return all_finished(c - 1)
    if (model == "ssp")
        return all_finished(c - staleness - 1)
    by_clock = all_finished(c - staleness - speculation - 1)
    by_key = key_is_free(key_of[w, c], w, c - staleness - 1)
    if (by_key > by_clock) {
        releaser = key_releaser
        return by_key
    }
    return by_clock
}

function line(x1, y1, x2, y2, style) {
    printf "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" %s/>\n", x1, y1, x2, y2, style
}

function box(x, y, w, h, style) {
    printf "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" %s/>\n", x, y, w, h, style
}

function text(x, y, anchor, size, colour, what) {
    printf "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\" font-size=\"%d\" fill=\"%s\">%s</text>\n", \
        x, y, anchor, size, colour, what
}

function x_of(time) { return left + time * unit }

function y_of(worker) { return top + worker * row }

BEGIN {
    n_workers = 3
    n_iterations = 6
    split("2 2 2 2 2 2  3 3 3 3 3 3  2 7 3 2 3 2", durations)
    split("a a a b b c  b b b a a a  c c c c c c", keys)
    split("#3b73b9 #4d9a5b #c7762f", colours)
    left = 96; top = 34; row = 42; bar = 26; unit = 26

    for (w = 0; w < n_workers; w++)
        for (i = 0; i < n_iterations; i++) {
            duration[w, i] = durations[w * n_iterations + i + 1]
            key_of[w, i] = keys[w * n_iterations + i + 1]
        }
    # What a Get waits for are iterations before its own: clock by clock, each is known in time.
    for (c = 0; c < n_iterations; c++)
        for (w = 0; w < n_workers; w++) {
            ready[w, c] = c > 0 ? finish[w, c - 1] : 0
            releaser = -1
            start[w, c] = max(ready[w, c], released(w, c))
            released_by[w, c] = start[w, c] > ready[w, c] ? releaser : -1
            finish[w, c] = start[w, c] + duration[w, c]
            end = max(end, finish[w, c])
        }

    name = model == "asp" ? "ASP" : model == "bsp" ? "BSP" : \
           model == "ssp" ? "SSP, staleness " staleness : \
           "SparseSSP, staleness " staleness ", speculation " speculation
    width = left + 25 * unit + 20
    height = top + n_workers * row + 34
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" " \
           "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\">\n", width, height, width, height
    printf "<title>Three workers of six iterations under %s</title>\n", name
    box(0, 0, width, height, "fill=\"#ffffff\"")
    text(12, 20, "start", 14, "#222222", name)

    for (t = 0; t <= 25; t += 5) {
        line(x_of(t), top, x_of(t), y_of(n_workers) - 4, "stroke=\"#dddddd\"")
        text(x_of(t), y_of(n_workers) + 10, "middle", 11, "#777777", t)
    }
    text(x_of(25), y_of(n_workers) + 26, "end", 11, "#777777", "time")

    for (w = 0; w < n_workers; w++) {
        text(left - 12, y_of(w) + 18, "end", 12, "#222222", "worker " w)
        for (c = 0; c < n_iterations; c++) {
            if (start[w, c] > ready[w, c])
                box(x_of(ready[w, c]), y_of(w) + 9, (start[w, c] - ready[w, c]) * unit, 8, \
                    "fill=\"#cccccc\"")
            box(x_of(start[w, c]), y_of(w), duration[w, c] * unit - 2, bar, \
                "rx=\"3\" fill=\"" colours[w + 1] "\"")
            label = c (model == "sparse_ssp" ? " " key_of[w, c] : "")
            text(x_of(start[w, c]) + duration[w, c] * unit / 2 - 1, y_of(w) + 18, "middle", 12, \
                 "#ffffff", label)
        }
    }
    # From the end of the iteration that was waited for to the Get that it released.
    for (w = 0; w < n_workers; w++)
        for (c = 0; c < n_iterations; c++) {
            by = released_by[w, c]
            if (by < 0 || by == w)
                continue
            x = x_of(start[w, c]) - 1
            line(x, by < w ? y_of(by) + bar : y_of(by), x, by < w ? y_of(w) : y_of(w) + bar, \
                 "stroke=\"#b02020\" stroke-width=\"2\" stroke-dasharray=\"4 3\"")
        }
    text(left, y_of(n_workers) + 26, "start", 11, "#777777", "number: the iteration" \
         (model == "sparse_ssp" ? ", letter: the key that it uses" : "") \
         (model == "asp" ? "" : "; grey: the Get waits; dashed: what ends the wait"))
    print "</svg>"
}
