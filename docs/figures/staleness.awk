# Draws what docs/figures/measure-staleness has measured: the loss over time, who waited how long, and
# how stale what was read was, under each model.
# usage: awk -f staleness.awk staleness.tsv

function line(x1, y1, x2, y2, style) {
    printf "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2, y2, style
}

function box(x, y, w, h, style) {
    printf "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" %s/>\n", x, y, w, h, style
}

function text(x, y, anchor, size, colour, what) {
    printf "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\" fill=\"%s\">%s</text>\n", \
        x, y, anchor, size, colour, what
}

function heading(x, y, what, note) {
    printf "<text x=\"%d\" y=\"%d\" font-size=\"14\" fill=\"#222222\">%s", x, y, what
    printf "<tspan font-size=\"11\" fill=\"#777777\" dx=\"10\">%s</tspan></text>\n", note
}

# Between two ticks: no more than ten of them.
function second_step() { return most_seconds < 1 ? 0.1 : most_seconds < 5 ? 0.5 : 1 }

function ceiling(x) { return x == int(x) ? x : int(x) + 1 }

# ---- the loss ----

function x_of(seconds) { return left + seconds / most_seconds * (right - left) }

function y_of(loss) { return bottom - (loss - least_loss) / (most_loss - least_loss) * (bottom - top) }

# Whether an earlier model's run ends where this one's does, so that their names would meet.
function name_is_near(m,    k, distance) {
    for (k = 1; k < m; k++) {
        distance = x_of(at[k, n_points[k]]) - x_of(at[m, n_points[m]])
        if (distance < 0)
            distance = -distance
        if (distance < 3.2 * (length(name[k]) + length(name[m])))
            return 1
    }
    return 0
}

function draw_loss(    m, i, tick, drop) {
    left = 56; right = 880; top = 52; bottom = 300
    heading(12, 24, "Loss against seconds", "of the last rows, before they were learnt; a dot where the run ends")
    for (tick = ceiling(least_loss * 20) / 20; tick <= most_loss; tick += 0.05) {
        line(left, y_of(tick), right, y_of(tick), "stroke=\"#e4e4e4\"")
        text(left - 8, y_of(tick) + 4, "end", 11, "#777777", sprintf("%.2f", tick))
    }
    for (tick = 0; tick <= most_seconds; tick += second_step()) {
        line(x_of(tick), bottom, x_of(tick), bottom + 4, "stroke=\"#999999\"")
        text(x_of(tick), bottom + 17, "middle", 11, "#777777", tick)
    }
    line(left, bottom, right, bottom, "stroke=\"#999999\"")
    text(right, bottom + 17, "end", 11, "#777777", "seconds")
    for (m = n_models; m >= 1; m--) {
        printf "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" stroke-linejoin=\"round\" points=\"", \
            colour[m]
        for (i = 1; i <= n_points[m]; i++)
            printf "%.1f,%.1f ", x_of(at[m, i]), y_of(loss[m, i])
        print "\"/>"
    }
    for (m = 1; m <= n_models; m++) {
        i = n_points[m]
        printf "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n", x_of(at[m, i]), \
            y_of(loss[m, i]), colour[m]
        # neighbours that end close together have their names at different heights
        drop = name_is_near(m) ? 34 : 18
        if (drop > 18)
            line(x_of(at[m, i]), y_of(loss[m, i]) + 6, x_of(at[m, i]), y_of(loss[m, i]) + 22, \
                "stroke=\"" colour[m] "\"")
        text(x_of(at[m, i]), y_of(loss[m, i]) + drop, "middle", 11, colour[m], name[m])
    }
}

# ---- one row for each model ----

function row_of(m) { return 378 + (m - 1) * 40 }

function draw_waits(    m, w, tick, scale, y, sum) {
    left = 130; right = 400
    scale = (right - left) / most_seconds
    heading(12, 352, "Waiting", "seconds, of each worker; grey: the run")
    for (tick = 0; tick <= most_seconds; tick += 2 * second_step()) {
        line(left + tick * scale, row_of(1) - 4, left + tick * scale, row_of(n_models) + 30, \
            "stroke=\"#e4e4e4\"")
        text(left + tick * scale, row_of(n_models) + 45, "middle", 11, "#777777", tick)
    }
    for (m = 1; m <= n_models; m++) {
        y = row_of(m)
        sum = 0
        box(left, y, seconds[m] * scale, 26, "fill=\"#eeeeee\"")
        for (w = 0; w < n_workers[m]; w++) {
            box(left, y + 1 + w * 24 / n_workers[m], wait[m, w] * scale, 24 / n_workers[m] - 1, \
                "fill=\"" colour[m] "\"")
            sum += wait[m, w]
        }
        text(left - 10, y + 17, "end", 12, colour[m], name[m])
        text(left + seconds[m] * scale + 6, y + 17, "start", 11, "#555555", \
            sprintf("%.0f %%", sum / n_workers[m] / seconds[m] * 100))
    }
}

function draw_gets(    m, b, i, n_bins, first, label, bin, width, share, n, height) {
    left = 460; right = 880
    n_bins = split("0 1 2 3 5 9 17 33 63", first, " ")
    split("0|1|2|3–4|5–8|9–16|17–32|33–62|63 …", label, "|")
    width = (right - left) / n_bins
    heading(left, 352, "Staleness", "clocks that what a Get read was behind its reader; % of the Gets")
    for (b = 1; b <= n_bins; b++)
        text(left + (b - 0.5) * width, row_of(n_models) + 45, "middle", 11, "#777777", label[b])
    for (m = 1; m <= n_models; m++) {
        n = 0
        for (b = 1; b <= n_bins; b++)
            bin[b] = 0
        for (i = 0; i < n_gets[m]; i++) {
            for (b = n_bins; i < first[b]; b--)
                ;
            bin[b] += gets[m, i]
            n += gets[m, i]
        }
        line(left, row_of(m) + 26, right, row_of(m) + 26, "stroke=\"#cccccc\"")
        for (b = 1; b <= n_bins; b++) {
            share = bin[b] / n
            height = share * 26
            if (bin[b] == 0)
                continue
            box(left + (b - 1) * width + 3, row_of(m) + 26 - height, width - 6, height, \
                "fill=\"" colour[m] "\"")
            text(left + (b - 0.5) * width, row_of(m) + 23 - height, "middle", 10, "#555555", \
                share < 0.01 ? "&lt;1" : sprintf("%.0f", share * 100))
        }
        # where there is room for it: left of the last bin, or right of the bound
        text(bin[n_bins] / n > 0.2 ? left + 6 * width : right - 4, row_of(m) + 10, "end", 11, \
            "#777777", sprintf("mean %.1f, most %d", mean[m], most[m]))
    }
}

BEGIN {
    FS = "\t"
    split("#444444 #8fbcdf #5b9bd0 #2f74b5 #164a86 #4d9a5b #c7762f", colours, " ")
    most_loss = -1e9
    least_loss = 1e9
}

FNR == 1 { next }

!($1 in number) {
    number[$1] = ++n_models
    name[n_models] = $1
    colour[n_models] = colours[n_models]
}

{ m = number[$1] }

$2 == "seconds" {
    seconds[m] = $4
    if ($4 > most_seconds)
        most_seconds = $4
}

$2 == "wait" { wait[m, $3] = $4; n_workers[m]++ }

$2 == "mean" { mean[m] = $4 }

$2 == "most" { most[m] = $4 }

$2 == "gets" { gets[m, $3] = $4; n_gets[m]++ }

$2 == "loss" {
    at[m, ++n_points[m]] = $3
    loss[m, n_points[m]] = $4
    if ($4 > most_loss)
        most_loss = $4
    if ($4 < least_loss)
        least_loss = $4
}

END {
    width = 900
    height = row_of(n_models) + 62
    most_loss = most_loss < 0.7 ? 0.7 : most_loss
    least_loss -= 0.055
    most_seconds *= 1.06
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\"", width, height
    printf " viewBox=\"0 0 %d %d\" font-family=\"sans-serif\">\n", width, height
    print "<title>Loss, waiting and staleness of eight workers, of which one or another is delayed, under each model</title>"
    box(0, 0, width, height, "fill=\"#ffffff\"")
    draw_loss()
    draw_waits()
    draw_gets()
    print "</svg>"
}
